//! No process inside can change, leave or bypass the network of the body.

use support::bodies::c_body;

/// The first lines of each body of this module.
const ATTEMPTS: &str = include_str!("../bodies/egress/confinement_attempts.py");

on_both_captures! {
    /// Cases 31 to 34.
    fn no_process_inside_can_change_or_leave_the_network(setting) {
        let seen = setting.run(&["api.openai.com"], &format!("{ATTEMPTS}
say('and still', ask('api.openai.com')[:2], dial('8.8.8.8', 443))"));
        let wrong = seen.said.iter().find(|line| line.contains(": succeeded"));
        assert_eq!(wrong, None, "{seen:#?}");
        assert_eq!(seen.said.last().map(String::as_str), Some("and still: ok reset"), "{seen:#?}");
        let devices = seen.said.iter().find(|line| line.starts_with("devices: "));
        assert_eq!(devices.map(String::as_str), Some("devices: lo"));
        assert!(seen.denials.contains(&"tcp ip-literal 8.8.8.8:443 x1".to_owned()));
        assert_eq!(setting.outside.log().packets_to("8.8.8.8"), [""; 0]);
    }

    /// Case 34: socket(2) and socketcall(2) by the 32-bit table.
    fn the_32_bit_table_of_system_calls_has_no_sockets(setting) {
        let text = include_str!("../bodies/egress/the_32_bit_table_of_system_calls_has_no_sockets.c");
        let program = c_body("sockets-of-32-bit", text);
        let program = program.to_str().expect("plain");
        for more in [&[][..], &["socketcall"]] {
            let words = ["run", "--egress-capture", setting.capture.word(), "--allow-net", "api.openai.com",
                "--", program];
            let words: Vec<&str> = words.iter().chain(more).copied().collect();
            let done = setting.ground.command(&words).inside(setting.outside).done();
            done.assert_outcome("signaled", 128 + 31);
        }
    }

    /// Case 29: unix sockets of the host, by path and by abstract name.
    fn unix_sockets_of_the_host_are_not_reached(setting) {
        let path = setting.ground.path("socket");
        let listener = std::os::unix::net::UnixListener::bind(&path).expect("bound");
        listener.set_nonblocking(true).expect("set");
        let seen = setting.run(&["api.openai.com"], &format!("
for name in ({:?}, '\\0outside-of-the-egress-tests', '/run/dbus/system_bus_socket', '/var/run/nscd/socket',
             '/run/systemd/resolve/io.systemd.Resolve', '/run/docker.sock'):
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(name)
            say('reached', name)
        except OSError:
            pass", path.to_string_lossy()));
        seen.assert_said("");
        assert!(listener.accept().is_err());
        std::fs::remove_file(path).expect("removed");
    }

    /// Case 30: the body has its three streams, and no descriptor of the relay.
    fn no_descriptor_of_the_relay_is_inherited(setting) {
        let seen = setting.run(&["api.openai.com"], "
listing = os.open('/proc/self/fd', os.O_RDONLY)
say('descriptors', *sorted(int(number) for number in os.listdir(listing) if int(number) != listing))
for number in range(3, 64):
    try:
        if number != listing:
            os.fstat(number)
            say('open', number, os.readlink(f'/proc/self/fd/{number}'))
    except OSError:
        pass");
        let more: Vec<&String> = seen.said.iter().filter(|line| line.starts_with("open")).collect();
        assert!(more.len() <= 1, "{seen:#?}");
        for line in more {
            assert!(line.contains("/proc/"), "{line}");
        }
    }
}
