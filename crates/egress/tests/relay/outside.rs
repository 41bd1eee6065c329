//! The outside network: a name server, and echo servers at every address.

use std::collections::HashMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::{Arc, Mutex};

use crate::ground::{PORTS, Place};

/// The answers of the name server for a name.
#[derive(Clone, Default)]
pub(crate) struct Zone {
    /// The addresses of each answer in turn; the last one repeats.
    pub(crate) answers: Vec<Vec<&'static str>>,
    /// The target of a CNAME record, which has the addresses.
    pub(crate) alias: Option<&'static str>,
    /// Whether UDP answers are truncated.
    pub(crate) truncates: bool,
}

impl Zone {
    pub(crate) fn of(addresses: &[&'static str]) -> Self {
        Self {
            answers: vec![addresses.to_vec()],
            ..Self::default()
        }
    }
}

#[derive(Default)]
struct Known {
    zones: HashMap<String, Zone>,
    /// The queries: name, type, and whether over TCP.
    asked: Vec<(String, u16, bool)>,
    /// The addresses that the relay dialled.
    dialled: Vec<SocketAddr>,
}

#[derive(Clone)]
pub(crate) struct Outside {
    place: Place,
    known: Arc<Mutex<Known>>,
}

impl Outside {
    pub(crate) fn start(place: Place) -> Self {
        let outside = Self {
            place: place.clone(),
            known: Arc::default(),
        };
        for port in PORTS {
            if port != 9000 {
                outside.serve(port);
            }
        }
        let known = outside.known.clone();
        place.run(move || {
            let datagrams = UdpSocket::bind("198.51.100.2:53").expect("bound");
            let streams = TcpListener::bind("198.51.100.2:53").expect("bound");
            let of_streams = known.clone();
            std::thread::spawn(move || {
                let mut buffer = [0; 2_048];
                while let Ok((read, from)) = datagrams.recv_from(&mut buffer) {
                    let answer = say(&buffer[..read], false, &known);
                    datagrams.send_to(&answer, from).expect("sent");
                }
            });
            std::thread::spawn(move || {
                for mut stream in streams.incoming().flatten() {
                    let mut length = [0; 2];
                    while stream.read_exact(&mut length).is_ok() {
                        let mut message = vec![0; usize::from(u16::from_be_bytes(length))];
                        stream.read_exact(&mut message).expect("whole");
                        let answer = say(&message, true, &of_streams);
                        let length = u16::try_from(answer.len()).expect("short");
                        // In two parts: a reader must accept partial input.
                        let framed = [&length.to_be_bytes(), answer.as_slice()].concat();
                        stream.write_all(&framed[..1]).expect("written");
                        stream.write_all(&framed[1..]).expect("written");
                    }
                }
            });
        });
        outside
    }

    pub(crate) fn name(&self, name: &str, zone: Zone) {
        let mut known = self.known.lock().expect("whole");
        known.zones.insert(name.to_owned(), zone);
    }

    /// The number of queries for a name: over UDP, over TCP.
    pub(crate) fn asked(&self, name: &str) -> (usize, usize) {
        let known = self.known.lock().expect("whole");
        let count = |over_stream| {
            let asked = known.asked.iter();
            asked
                .filter(|(of, _, stream)| of == name && *stream == over_stream)
                .count()
        };
        (count(false), count(true))
    }

    pub(crate) fn all_asked(&self) -> usize {
        self.known.lock().expect("whole").asked.len()
    }

    /// The addresses that the relay dialled, in order.
    pub(crate) fn dialled(&self) -> Vec<String> {
        let known = self.known.lock().expect("whole");
        known.dialled.iter().map(ToString::to_string).collect()
    }

    /// Runs an echo server at every address.
    fn serve(&self, port: u16) {
        let known = self.known.clone();
        self.place.run(move || {
            let doors = [TcpListener::bind(("::", port)).expect("bound")];
            for door in doors {
                let known = known.clone();
                std::thread::spawn(move || {
                    for stream in door.incoming().flatten() {
                        let own = stream.local_addr().expect("known");
                        let own = SocketAddr::new(own.ip().to_canonical(), own.port());
                        known.lock().expect("whole").dialled.push(own);
                        std::thread::spawn(move || give_back(stream));
                    }
                });
            }
        });
    }

    /// Runs `serve` for each connection to a port.
    pub(crate) fn serve_with(&self, port: u16, act: impl Fn(TcpStream) + Send + Sync + 'static) {
        self.place.run(move || {
            let door = TcpListener::bind(("0.0.0.0", port)).expect("bound");
            let act = Arc::new(act);
            std::thread::spawn(move || {
                for stream in door.incoming().flatten() {
                    let act = act.clone();
                    std::thread::spawn(move || act(stream));
                }
            });
        });
    }
}

fn give_back(mut stream: TcpStream) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        match stream.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => {
                if stream.write_all(&buffer[..read]).is_err() {
                    return;
                }
            }
            Err(_) => return,
        }
    }
    drop(stream.shutdown(Shutdown::Write));
}

/// The answer to a query of the relay.
fn say(message: &[u8], over_stream: bool, known: &Mutex<Known>) -> Vec<u8> {
    let mut at = 12;
    let mut labels = Vec::new();
    while message[at] != 0 {
        let length = usize::from(message[at]);
        labels.push(String::from_utf8_lossy(&message[at + 1..=at + length]).into_owned());
        at += 1 + length;
    }
    let name = labels.join(".");
    let kind = u16::from_be_bytes([message[at + 1], message[at + 2]]);
    let question = &message[12..at + 5];
    let mut known = known.lock().expect("whole");
    known.asked.push((name.clone(), kind, over_stream));
    let rounds = known
        .asked
        .iter()
        .filter(|(of, asked, _)| *of == name && *asked == kind)
        .count();
    let zone = known.zones.get(&name).cloned();
    let mut answer = [
        &message[..2],
        &[0x81, 0x80, 0, 1, 0, 0, 0, 0, 0, 0],
        question,
    ]
    .concat();
    let Some(zone) = zone else {
        answer[3] |= 3;
        return answer;
    };
    if zone.truncates && !over_stream {
        answer[2] |= 2;
        return answer;
    }
    let said = zone.answers.get(rounds - 1).or(zone.answers.last());
    let mut owner = vec![0xc0, 12];
    let mut records = 0;
    if let Some(alias) = zone.alias {
        let mut target = Vec::new();
        for label in alias.split('.') {
            target.push(u8::try_from(label.len()).expect("short"));
            target.extend_from_slice(label.as_bytes());
        }
        target.push(0);
        let length = u16::try_from(target.len()).expect("short");
        answer.extend(
            [
                &owner,
                &[0, 5, 0, 1, 0, 0, 0, 0][..],
                &length.to_be_bytes(),
                &target,
            ]
            .concat(),
        );
        owner = target;
        records += 1;
    }
    for address in said.into_iter().flatten() {
        let octets = match (address.parse().expect("an address"), kind) {
            (IpAddr::V4(address), 1) => address.octets().to_vec(),
            (IpAddr::V6(address), 28) => address.octets().to_vec(),
            _ => continue,
        };
        let length = u16::try_from(octets.len()).expect("short");
        let head = [
            &kind.to_be_bytes()[..],
            &[0, 1, 0, 0, 0, 0],
            &length.to_be_bytes(),
        ]
        .concat();
        answer.extend([owner.as_slice(), &head, &octets].concat());
        records += 1;
    }
    answer[7] = records;
    answer
}
