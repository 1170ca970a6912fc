//! RESP: a request is a line of words, as `redis-cli` takes them; all go over one connection.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;

use super::{compare, server};
use crate::program::PATIENCE;

/// Least number that depends on the time: the limits of the file are smaller.
const TIME_MIN: u64 = 2_000;

#[test]
fn resp_answers_as_it_is_written() {
    let server = server();
    let mut stream = TcpStream::connect(server.address("resp")).expect("it listens");
    stream.set_read_timeout(Some(PATIENCE)).expect("the time is not zero");
    compare("resp.txt", |asked| answer(&mut stream, asked));
}

fn answer(stream: &mut TcpStream, asked: &str) -> String {
    let words: Vec<_> = asked.split(' ').map(|word| word.trim_matches('"')).collect();
    let mut command = format!("*{}\r\n", words.len());
    for word in words {
        command += &format!("${}\r\n{word}\r\n", word.len());
    }
    // A second command, whose answer is known, shows where the first answer ends.
    command += "*2\r\n$4\r\nECHO\r\n$7\r\n--end--\r\n";
    stream.write_all(command.as_bytes()).expect("it reads");
    let (mut said, mut bytes) = (String::new(), [0; 4096]);
    loop {
        let read = stream.read(&mut bytes).expect("it answers in time");
        assert!(read > 0, "it closed the connection after {said:?}");
        said += std::str::from_utf8(&bytes[..read]).expect("it answers in text");
        if let Some(answer) = said.strip_suffix("$7\r\n--end--\r\n") {
            let lines = answer.trim_end().split("\r\n");
            return lines.map(without_time).collect::<Vec<_>>().join("\n");
        }
    }
}

fn without_time(line: &str) -> String {
    let number = line.strip_prefix(':').and_then(|number| number.parse::<u64>().ok());
    match number {
        Some(TIME_MIN..) => ":*".to_owned(),
        _ => line.to_owned(),
    }
}
