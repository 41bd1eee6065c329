//! The NATS protocol, as far as tests need it: what `runner` would not send.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};

use serde_json::Value;

/// A connection.
pub struct Client {
    stream: BufReader<TcpStream>,
    requests: u64,
}

impl Client {
    pub fn connect(address: Ipv4Addr, port: u16) -> Self {
        let stream = TcpStream::connect((address, port)).expect("connected");
        let mut client = Self {
            stream: BufReader::new(stream),
            requests: 0,
        };
        client.send(
            "CONNECT {\"verbose\":false,\"headers\":true}\r\nSUB answers.* 1\r\n",
            b"",
        );
        client
    }

    fn send(&mut self, head: &str, payload: &[u8]) {
        let message = [head.as_bytes(), payload].concat();
        self.stream.get_mut().write_all(&message).expect("sent");
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.stream.read_line(&mut line).expect("read");
        assert!(!line.is_empty(), "the server has closed the connection");
        line.trim_end().to_owned()
    }

    /// The answer, with its headers before it, if there are any.
    pub fn request(&mut self, subject: &str, payload: &[u8]) -> Vec<u8> {
        self.requests += 1;
        let inbox = format!("answers.{}", self.requests);
        let head = format!("PUB {subject} {inbox} {}\r\n", payload.len());
        self.send(&head, &[payload, b"\r\n"].concat());
        loop {
            let line = self.line();
            let words: Vec<&str> = line.split(' ').collect();
            match words[0] {
                "MSG" | "HMSG" => {
                    let length: usize = words[words.len() - 1].parse().expect("a length");
                    let mut content = vec![0; length + 2];
                    self.stream.read_exact(&mut content).expect("read");
                    content.truncate(length);
                    if words[1] == inbox {
                        return content;
                    }
                }
                "PING" => self.send("PONG\r\n", b""),
                "INFO" | "PONG" | "+OK" => (),
                _ => panic!("{line}"),
            }
        }
    }

    pub fn json(&mut self, subject: &str, payload: &str) -> Value {
        let answer = self.request(subject, payload.as_bytes());
        serde_json::from_slice(&answer).expect("JSON")
    }

    /// Puts a message into a stream.
    pub fn publish(&mut self, subject: &str, payload: &[u8]) {
        let answer = self.request(subject, payload);
        let answer: Value = serde_json::from_slice(&answer).expect("JSON");
        assert!(answer["seq"].is_number(), "{answer}");
    }

    /// How many messages a stream has.
    pub fn messages(&mut self, stream: &str) -> u64 {
        let info = self.json(&format!("$JS.API.STREAM.INFO.{stream}"), "");
        info["state"]["messages"]
            .as_u64()
            .unwrap_or_else(|| panic!("{info}"))
    }

    /// The value of a key of the bucket of runs.
    pub fn result(&mut self, stream: &str, id: &str) -> Value {
        let subject = format!("$JS.API.DIRECT.GET.KV_{stream}-runs.$KV.{stream}-runs.{id}");
        let answer = self.request(&subject, b"");
        let at = answer
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")
            .map_or(0, |at| at + 4);
        serde_json::from_slice(&answer[at..]).unwrap_or_default()
    }
}
