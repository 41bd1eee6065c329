            export GOCACHE=$PWD/cache GOPATH=$PWD/path GOFLAGS=-mod=mod GOPROXY=off GOTOOLCHAIN=local
            go mod init -modfile=go.mod demo 2>/dev/null || go mod init demo 2>/dev/null
            cat >main.go <<'END'
package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"sync"
)

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil { panic(err) }
	go http.Serve(listener, http.HandlerFunc(func(reply http.ResponseWriter, _ *http.Request) { fmt.Fprint(reply, "hello") }))
	var all sync.WaitGroup
	var sum sync.Map
	for number := 0; number < 20; number++ {
		all.Add(1)
		go func(number int) {
			defer all.Done()
			reply, err := http.Get("http://" + listener.Addr().String())
			if err != nil { panic(err) }
			body, _ := io.ReadAll(reply.Body)
			sum.Store(number, string(body))
		}(number)
	}
	all.Wait()
	count := 0
	sum.Range(func(_, body any) bool { if body == "hello" { count++ }; return true })
	from, _ := os.Open("main.go")
	to, _ := os.Create("copy")
	copied, err := io.Copy(to, from)
	child, _ := exec.Command("echo", "child").Output()
	fmt.Print(count, " ", copied > 500, " ", err, " ", string(child))
}
END
            go build -o main . && ./main
        
