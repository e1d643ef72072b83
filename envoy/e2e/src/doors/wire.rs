//! A small HTTP/1.1 client that sends a request line exactly as it is written.
//!
//! Owns: one connection. Promises: no path is normalised on the way, an answer is read whole, the
//! address that a request comes from is the caller's choice. Never: waits longer than 20 s.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

use crate::AnyError;

/// Longest wait for any byte.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longest body that is read.
const MAX_BODY_BYTES: usize = 4 << 20;

/// What a client was told.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// Headers in the order they came, names in lower case.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: String,
}

impl Answer {
    /// A header that is there once. `None`: it is not there.
    ///
    /// # Panics
    /// It is there more than once.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut found = self.headers.iter().filter(|(key, _)| key == name);
        let first = found.next();
        assert!(found.next().is_none(), "{name} is there twice: {self:?}");
        first.map(|(_, value)| value.as_str())
    }

    /// A header that is a number.
    ///
    /// # Panics
    /// It is not there, or no number.
    pub fn number(&self, name: &str) -> u64 {
        let value = self.header(name).and_then(|text| text.parse().ok());
        value.unwrap_or_else(|| panic!("no number in {name}: {self:?}"))
    }
}

/// A connection that stays open.
#[derive(Debug)]
pub struct Connection {
    reader: BufReader<TcpStream>,
}

impl Connection {
    /// Connects from an address of this machine.
    ///
    /// # Errors
    /// Nobody listens there.
    pub fn open(to: SocketAddr, from: Ipv4Addr) -> Result<Connection, AnyError> {
        let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
        socket.bind(&SocketAddr::from((from, 0)).into())?;
        socket.connect_timeout(&to.into(), PATIENCE)?;
        let stream = TcpStream::from(socket);
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Connection {
            reader: BufReader::new(stream),
        })
    }

    /// Sends `line`, such as `GET /v2/x`, with these headers; returns the answer.
    ///
    /// # Errors
    /// No whole answer in time.
    pub fn ask(&mut self, line: &str, headers: &[(&str, &str)]) -> Result<Answer, AnyError> {
        let host = self.reader.get_ref().peer_addr()?;
        let mut text = format!("{line} HTTP/1.1\r\nHost: {host}\r\n");
        for (name, value) in headers {
            text += &format!("{name}: {value}\r\n");
        }
        text += "\r\n";
        self.reader.get_mut().write_all(text.as_bytes())?;
        self.receive()
    }

    fn receive(&mut self) -> Result<Answer, AnyError> {
        let mut answer = Answer::default();
        let first = self.line()?;
        let status = first.split(' ').nth(1).and_then(|word| word.parse().ok());
        answer.status = status.ok_or_else(|| format!("no status in {first:?}"))?;
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(':') else {
                break;
            };
            let pair = (name.to_ascii_lowercase(), value.trim().to_owned());
            answer.headers.push(pair);
        }
        let body = if answer.header("transfer-encoding").is_some() {
            self.chunks()?
        } else {
            let length = answer.header("content-length").unwrap_or("0").parse()?;
            self.bytes(length)?
        };
        answer.body = String::from_utf8_lossy(&body).into_owned();
        Ok(answer)
    }

    fn line(&mut self) -> Result<String, AnyError> {
        let mut line = String::new();
        if self.reader.read_line(&mut line)? == 0 {
            return Err("the connection was closed".into());
        }
        Ok(line.trim_end().to_owned())
    }

    fn chunks(&mut self) -> Result<Vec<u8>, AnyError> {
        let mut body = Vec::new();
        loop {
            let length = usize::from_str_radix(&self.line()?, 16)?;
            body.extend(self.bytes(length)?);
            self.line()?;
            if length == 0 {
                return Ok(body);
            }
        }
    }

    fn bytes(&mut self, length: usize) -> Result<Vec<u8>, AnyError> {
        if length > MAX_BODY_BYTES {
            return Err(format!("a body of {length} bytes").into());
        }
        let mut body = vec![0; length];
        self.reader.read_exact(&mut body)?;
        Ok(body)
    }
}

/// One request on a connection of its own, from 127.0.0.1.
///
/// # Errors
/// No whole answer in time.
pub fn ask(to: SocketAddr, line: &str, headers: &[(&str, &str)]) -> Result<Answer, AnyError> {
    ask_from(Ipv4Addr::LOCALHOST, to, line, headers)
}

/// The same from another address of loopback, all of 127.0.0.0/8.
///
/// # Errors
/// No whole answer in time.
pub fn ask_from(
    from: Ipv4Addr,
    to: SocketAddr,
    line: &str,
    headers: &[(&str, &str)],
) -> Result<Answer, AnyError> {
    let answer = Connection::open(to, from).and_then(|mut one| one.ask(line, headers));
    answer.map_err(|error| format!("{to}: {line}: {error}").into())
}
