//! As much of HTTP/2 as a test needs: many streams in one connection, and their statuses.
//!
//! Header blocks are written without compression. Of an answer's block only the status is read,
//! which nginx writes first: indexed (200), or as a literal of three digits.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const END_STREAM_AND_HEADERS: u8 = 1 | 4;

pub(crate) struct Http2 {
    stream: TcpStream,
}

impl Http2 {
    pub(crate) fn open(port: u16) -> Http2 {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("nginx listens");
        stream
            .set_read_timeout(Some(Duration::from_secs(20)))
            .expect("a timeout");
        stream
            .write_all(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")
            .expect("sent");
        let mut http2 = Http2 { stream };
        http2.frame(SETTINGS, 0, 0, &[]);
        http2
    }

    fn frame(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).expect("short").to_be_bytes();
        let mut frame = vec![length[1], length[2], length[3], kind, flags];
        frame.extend(stream.to_be_bytes());
        frame.extend(payload);
        self.stream.write_all(&frame).expect("sent");
    }

    /// Opens a stream for each path, all before any answer is read; statuses in their order.
    pub(crate) fn get_all(&mut self, paths: &[&str]) -> Vec<u16> {
        let id = |at: usize| u32::try_from(2 * at + 1).expect("few streams");
        for (at, path) in paths.iter().enumerate() {
            let mut block = vec![0x82, 0x86]; // GET, http
            for (index, value) in [(4, *path), (1, "localhost")] {
                // Literals without indexing, of the names :path and :authority.
                block.push(index);
                block.push(u8::try_from(value.len()).expect("less than 127 bytes"));
                block.extend(value.as_bytes());
            }
            self.frame(HEADERS, END_STREAM_AND_HEADERS, id(at), &block);
        }
        let mut statuses = vec![0; paths.len()];
        while statuses.contains(&0) {
            let mut head = [0; 9];
            self.stream.read_exact(&mut head).expect("a frame");
            let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
            let mut payload = vec![0; length as usize];
            self.stream.read_exact(&mut payload).expect("its payload");
            let stream = u32::from_be_bytes([head[5], head[6], head[7], head[8]]);
            match head[3] {
                HEADERS => statuses[(stream as usize - 1) / 2] = status(&payload),
                GO_AWAY | RST_STREAM => panic!("refused: {head:?} {payload:?}"),
                SETTINGS if head[4] == 0 => self.frame(SETTINGS, 1, 0, &[]),
                _ => {}
            }
        }
        statuses
    }
}

fn status(block: &[u8]) -> u16 {
    let block = block.strip_prefix(&[0x20]).unwrap_or(block); // a new size of the table
    match block {
        [0x88, ..] => 200,
        [0x48 | 0x08, 3, digits @ ..] => {
            let digits = digits.get(..3).and_then(|d| std::str::from_utf8(d).ok());
            digits.and_then(|d| d.parse().ok()).expect("three digits")
        }
        other => panic!("no status: {other:?}"),
    }
}
