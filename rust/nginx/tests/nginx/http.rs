//! A small HTTP/1.1 client: one connection, requests one after the other or all at once.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

/// Longest wait for any byte.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Clone, Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: String,
}

impl Response {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        let found = self
            .headers
            .iter()
            .find(|(key, _)| key.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value.as_str())
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        let text = self
            .header(name)
            .unwrap_or_else(|| panic!("no {name} in {self:?}"));
        text.parse()
            .unwrap_or_else(|_| panic!("{name}: {text} is no number"))
    }
}

pub(crate) struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    pub(crate) fn open(port: u16) -> std::io::Result<Connection> {
        let stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            reader: BufReader::new(stream),
        })
    }

    /// Sends requests without waiting for answers; `extra` are header lines, each with its end.
    pub(crate) fn send(&mut self, paths: &[&str], extra: &str) -> std::io::Result<()> {
        let mut text = String::new();
        for path in paths {
            text += &format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{extra}\r\n");
        }
        self.reader.get_mut().write_all(text.as_bytes())
    }

    /// Sends these bytes as they are.
    pub(crate) fn send_raw(&mut self, text: &str) -> std::io::Result<()> {
        self.reader.get_mut().write_all(text.as_bytes())
    }

    /// An answer up to its body.
    pub(crate) fn receive_head(&mut self) -> std::io::Result<Response> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err(broken("closed"));
        }
        let status = line.split(' ').nth(1).and_then(|word| word.parse().ok());
        let status = status.ok_or_else(|| broken(&line))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            self.reader.read_line(&mut line)?;
            match line.trim_end().split_once(": ") {
                Some((name, value)) => headers.push((name.to_owned(), value.to_owned())),
                None => break,
            }
        }
        Ok(Response {
            status,
            headers,
            body: String::new(),
        })
    }

    pub(crate) fn receive(&mut self) -> std::io::Result<Response> {
        let mut response = self.receive_head()?;
        let (mut line, mut body) = (String::new(), Vec::new());
        if response.header("Transfer-Encoding").is_some() {
            loop {
                line.clear();
                self.reader.read_line(&mut line)?;
                let length = usize::from_str_radix(line.trim_end(), 16);
                let length = length.map_err(|_| broken(&line))?;
                let mut chunk = vec![0; length + 2];
                self.reader.read_exact(&mut chunk)?;
                body.extend_from_slice(&chunk[..length]);
                if length == 0 {
                    break;
                }
            }
        } else if let Some(length) = response.header("Content-Length") {
            body = vec![0; length.parse().map_err(|_| broken("length"))?];
            self.reader.read_exact(&mut body)?;
        }
        response.body = String::from_utf8_lossy(&body).into_owned();
        Ok(response)
    }

    pub(crate) fn get(&mut self, path: &str) -> std::io::Result<Response> {
        self.send(&[path], "")?;
        self.receive()
    }
}

fn broken(what: &str) -> std::io::Error {
    std::io::Error::new(std::io::ErrorKind::InvalidData, what)
}

/// One request on a connection of its own.
pub(crate) fn get_with(port: u16, path: &str, extra: &str) -> Response {
    let mut connection = Connection::open(port).expect("nginx listens");
    connection
        .send(&[path], &format!("Connection: close\r\n{extra}"))
        .expect("sent");
    connection
        .receive()
        .unwrap_or_else(|e| panic!("{path}: {e}"))
}
