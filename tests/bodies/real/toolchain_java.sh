            cat >Main.java <<'END'
import java.io.*; import java.net.*; import java.nio.file.*; import java.util.concurrent.*;
public class Main {
    public static void main(String[] words) throws Exception {
        ExecutorService threads = Executors.newFixedThreadPool(4);
        try (ServerSocket server = new ServerSocket(0, 9, InetAddress.getLoopbackAddress())) {
            Future<?> served = threads.submit(() -> {
                try (Socket one = server.accept()) { one.getOutputStream().write("served".getBytes()); } return null; });
            try (Socket one = new Socket(server.getInetAddress(), server.getLocalPort())) {
                System.out.println(new String(one.getInputStream().readAllBytes())); }
            served.get();
        }
        Path file = Files.createTempFile(Path.of("."), "a", "b");
        Files.writeString(file, "text"); Files.copy(file, Path.of("copy")); Files.move(file, Path.of("moved"));
        System.out.println(Files.readString(Path.of("copy")) + " " + new String(
            new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()).trim());
        long sum = java.util.stream.LongStream.range(0, 100000).parallel().sum(); System.gc();
        System.out.println(sum); threads.shutdown();
    }
}
END
            javac Main.java; jar cfe main.jar Main Main.class; java -jar main.jar
        
