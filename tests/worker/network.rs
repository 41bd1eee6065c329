//! A network of the test's own: a namespace for the server, and one for each worker, on one bridge.

use std::net::Ipv4Addr;
use std::os::fd::AsFd as _;
use std::process::{Child, Command};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use support::invariants::eventually;

/// Where the server is.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// Ended with its namespaces when it is dropped.
pub struct Network {
    workers: Vec<Holder>,
}

/// A process that does nothing, in a namespace of its own.
struct Holder(Child);

impl Holder {
    fn start() -> Self {
        let mut command = Command::new("unshare");
        let child = command.args(["--net", "sleep", "infinity"]).spawn();
        let holder = Self(child.expect("unshare starts"));
        let of = |pid: &str| std::fs::read_link(format!("/proc/{pid}/ns/net")).expect("a link");
        let pid = holder.0.id().to_string();
        eventually("the namespace is made", || of(&pid) != of("thread-self"));
        holder
    }

    /// `nsenter`, with a program to come.
    fn within(&self) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/proc/{}/ns/net", self.0.id()))
            .arg("--");
        command
    }

    fn ip(&self, words: &str) {
        let status = self.within().arg("ip").args(words.split(' ')).status();
        assert!(status.expect("ip starts").success(), "ip {words}");
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _killed = self.0.kill();
        let _waited = self.0.wait();
    }
}

impl Network {
    /// Moves this thread, and what it starts, to the server. Needs root.
    pub fn enter(workers: usize) -> Self {
        let server = Holder::start();
        for words in [
            "link set lo up",
            "link add bridge type bridge",
            "link set bridge up",
        ] {
            server.ip(words);
        }
        server.ip(&format!("addr add {SERVER}/24 dev bridge"));
        let workers: Vec<Holder> = (0..workers).map(|_| Holder::start()).collect();
        for (number, worker) in workers.iter().enumerate() {
            let pid = worker.0.id();
            server.ip(&format!(
                "link add w{number} type veth peer name wire netns {pid}"
            ));
            server.ip(&format!("link set w{number} master bridge up"));
            worker.ip(&format!("addr add 10.77.0.{}/24 dev wire", number + 2));
            worker.ip("link set wire up");
            worker.ip("link set lo up");
        }
        let file = std::fs::File::open(format!("/proc/{}/ns/net", server.0.id())).expect("opened");
        // Its namespace lives on with this thread.
        move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).expect("entered");
        Self { workers }
    }

    /// The same command, for this worker.
    pub fn at(&self, number: usize, command: &Command) -> Command {
        let mut entered = self.workers[number].within();
        entered.arg(command.get_program()).args(command.get_args());
        for (name, value) in command.get_envs() {
            entered.env(name, value.expect("it is set"));
        }
        entered
    }

    /// Packets from and to this worker are lost from now on.
    pub fn cut(&self, number: usize) {
        self.link(number, "down");
    }

    pub fn mend(&self, number: usize) {
        self.link(number, "up");
    }

    fn link(&self, number: usize, state: &str) {
        let mut ip = Command::new("ip");
        let status = ip
            .args(["link", "set", &format!("w{number}"), state])
            .status();
        assert!(status.expect("ip starts").success());
    }
}
