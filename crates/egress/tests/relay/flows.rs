//! Data of established connections.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpStream};

use rustix::net::sockopt::set_socket_linger;
use sha2::{Digest as _, Sha256};

use crate::ground::{Ground, Plan, dial, enter, is_reset};

fn pattern(length: usize, seed: u8) -> Vec<u8> {
    let mut state = u32::from(seed) + 1;
    std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state.to_be_bytes()[0]
    })
    .take(length)
    .collect()
}

#[test]
fn each_half_is_closed_on_its_own() {
    if !enter("flows::each_half_is_closed_on_its_own") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let outside = ground.outside.clone();
    // Answers only after the end of the request.
    outside.serve_with(9000, |mut stream| {
        let mut request = Vec::new();
        stream.read_to_end(&mut request).expect("read");
        stream.write_all(&request).expect("written");
    });
    let back = ground.act(|| {
        let mut stream = dial("db.example", 9000);
        stream.write_all(b"all of it").expect("written");
        stream.shutdown(Shutdown::Write).expect("shut down");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("an orderly end");
        back
    });
    assert_eq!(back, b"all of it");
    assert_eq!(ground.denials(), [""; 0]);
}

#[test]
fn the_body_may_send_after_the_server_has_closed_its_half() {
    if !enter("flows::the_body_may_send_after_the_server_has_closed_its_half") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let outside = ground.outside.clone();
    let (told, is_told) = std::sync::mpsc::channel();
    outside.serve_with(9000, move |mut stream| {
        stream.write_all(b"bye").expect("written");
        stream.shutdown(Shutdown::Write).expect("shut down");
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).expect("read");
        told.send(rest).expect("told");
    });
    let last = ground.act(|| {
        let mut stream = dial("db.example", 9000);
        let mut last = Vec::new();
        stream.read_to_end(&mut last).expect("an end");
        stream.write_all(b"still here").expect("written");
        last
    });
    assert_eq!(last, b"bye");
    assert_eq!(ground.wait(&is_told), b"still here");
}

fn reset(stream: TcpStream) {
    set_socket_linger(&stream, Some(std::time::Duration::ZERO)).expect("set");
    drop(stream);
}

#[test]
fn a_reset_of_one_side_is_a_reset_of_the_other() {
    if !enter("flows::a_reset_of_one_side_is_a_reset_of_the_other") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let outside = ground.outside.clone();
    let (told, is_told) = std::sync::mpsc::channel();
    outside.serve_with(9000, move |mut stream| {
        let mut first = [0];
        stream.read_exact(&mut first).expect("read");
        if first == *b"r" {
            reset(stream);
        } else {
            told.send(is_reset(&mut stream)).expect("told");
        }
    });
    assert!(ground.act(|| {
        let mut stream = dial("db.example", 9000);
        stream.write_all(b"r").expect("written");
        is_reset(&mut stream)
    }));
    ground.act(|| {
        let mut stream = dial("db.example", 9000);
        stream.write_all(b"x").expect("written");
        reset(stream);
    });
    assert!(ground.wait(&is_told));
}

#[test]
fn an_early_answer_to_an_unread_request_arrives() {
    if !enter("flows::an_early_answer_to_an_unread_request_arrives") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    // Closing with unread bytes resets the connection after the answer.
    ground.outside.serve_with(9000, |mut stream| {
        let mut some = [0; 1_000];
        stream.read_exact(&mut some).expect("read");
        stream.write_all(b"too large").expect("written");
    });
    let answer = ground.act(|| {
        let mut stream = dial("db.example", 9000);
        let mut writer = stream.try_clone().expect("cloned");
        let writing = std::thread::spawn(move || while writer.write_all(&[0; 10_000]).is_ok() {});
        let mut answer = [0; 9];
        let read = stream.read_exact(&mut answer).map(|()| answer);
        writing.join().expect("it was told");
        read
    });
    assert_eq!(&answer.expect("the answer came"), b"too large");
}

#[test]
fn a_slow_reader_gets_everything_and_delays_no_other_stream() {
    if !enter("flows::a_slow_reader_gets_everything_and_delays_no_other_stream") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let size = 24 << 20;
    ground.outside.serve_with(9000, move |mut stream| {
        stream.write_all(&pattern(size, 3)).expect("written");
    });
    let slow = ground.body.start(move || {
        let mut stream = dial("db.example", 9000);
        // Waits until all buffers are full.
        std::thread::sleep(std::time::Duration::from_millis(300));
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("an orderly end");
        Sha256::digest(all)
    });
    ground.act(|| {
        let back = crate::ground::exchange(&mut dial("api.openai.com", 8080), b"quick");
        assert_eq!(back, b"quick");
    });
    assert!(ground.wait(&slow) == Sha256::digest(pattern(size, 3)));
    let outcome = ground.finish();
    assert_eq!(
        outcome.report.hosts[0]
            .received_bytes
            .max(outcome.report.hosts[1].received_bytes),
        24 << 20
    );
}

#[test]
fn many_streams_at_once_lose_and_mix_nothing() {
    if !enter("flows::many_streams_at_once_lose_and_mix_nothing") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    // Two waves: the second one uses the slots of the first.
    for wave in 0..2_u8 {
        let streams: Vec<_> = (0..64_u8)
            .map(|number| {
                ground.body.start(move || {
                    let mut stream = dial("api.openai.com", 8080);
                    let mut writer = stream.try_clone().expect("cloned");
                    let size = 200_000 + 10_007 * usize::from(number);
                    let sent = pattern(size, number ^ wave);
                    let wanted = Sha256::digest(&sent);
                    let writing = std::thread::spawn(move || {
                        for part in sent.chunks(1 + 997 * (1 + usize::from(number))) {
                            writer.write_all(part).expect("written");
                        }
                        writer.shutdown(Shutdown::Write).expect("shut down");
                    });
                    let mut back = Vec::new();
                    stream.read_to_end(&mut back).expect("an orderly end");
                    writing.join().expect("written");
                    assert_eq!(back.len(), size);
                    Sha256::digest(back) == wanted
                })
            })
            .collect();
        for stream in &streams {
            assert!(ground.wait(stream));
        }
    }
    let outcome = ground.finish();
    assert_eq!(outcome.report.hosts[0].connections, 128);
    assert_eq!(
        outcome.report.hosts[0].sent_bytes,
        outcome.report.hosts[0].received_bytes
    );
}

#[test]
fn what_the_body_had_sent_when_it_ended_is_still_forwarded() {
    if !enter("flows::what_the_body_had_sent_when_it_ended_is_still_forwarded") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let (told, is_told) = std::sync::mpsc::channel();
    ground.outside.serve_with(9000, move |mut stream| {
        let mut all = Vec::new();
        stream.read_to_end(&mut all).expect("read");
        told.send(all.len()).expect("told");
    });
    ground.act(|| drop(dial("db.example", 443)));
    // The relay does not run from here to the end of the body.
    let address = ground.act(|| crate::ground::ask("db.example").1.expect("an address"));
    ground.body.run(move || {
        let mut stream = crate::ground::connect(&format!("{address}:9000"));
        stream.write_all(&[7; 50_000]).expect("written");
        drop(crate::ground::connect("8.8.8.8:443"));
    });
    ground.dialler().body_has_ended();
    ground.until(|ground| ground.dialler().is_drained());
    assert_eq!(is_told.recv().expect("it came"), 50_000);
    assert_eq!(
        ground.denials(),
        [
            "tcp db.example:443 port-not-allowed x1",
            "tcp 8.8.8.8:443 ip-literal x1"
        ]
    );
}

#[test]
fn a_transfer_cut_off_by_the_end_of_a_run_is_reset() {
    if !enter("flows::a_transfer_cut_off_by_the_end_of_a_run_is_reset") {
        return;
    }
    let mut ground = Ground::new(Plan::default());
    let (told, is_told) = std::sync::mpsc::channel();
    ground.outside.serve_with(9000, move |mut stream| {
        let mut first = [0; 5];
        stream.read_exact(&mut first).expect("read");
        stream.write_all(b"x").expect("written");
        told.send(is_reset(&mut stream)).expect("told");
    });
    let kept = ground.act(|| {
        let mut stream = dial("db.example", 9000);
        stream.write_all(b"a par").expect("written");
        stream.read_exact(&mut [0]).expect("a byte");
        stream
    });
    let outcome = ground.finish();
    assert_eq!(outcome.report.hosts[0].sent_bytes, 5);
    assert!(is_told.recv().expect("it saw an end"));
    drop(kept);
}
