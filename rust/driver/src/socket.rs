//! The one UDP socket of a member, for both directions.
//!
//! I own binding, buffer sizes, the mapping between IPv4 and dual-stack IPv6 addresses, and the
//! question whether an error concerns one peer or the socket. I never retry and never wait: the
//! loop does.

use std::future::Future;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::net::UdpSocket;

use crate::limits::SOCKET_BUFFER_BYTES;

/// What the loop needs of a socket. Tests put faults behind it.
pub(crate) trait Link: Send + 'static {
    /// Takes one datagram that is ready, or `WouldBlock`.
    fn try_recv(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)>;
    /// Sends one datagram, or `WouldBlock`.
    fn try_send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()>;
    /// The address that the kernel gave.
    fn local_addr(&self) -> SocketAddr;
    /// Granted receive and send buffers in bytes.
    fn buffers(&self) -> (usize, usize);
    /// Resolves when a datagram may be ready.
    fn readable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;
    /// Resolves when a datagram may be sent.
    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>>;
}

/// Makes a [`Link`]; called again whenever the last one failed.
pub(crate) trait Binder: Send + 'static {
    /// Binds `addr` inside the driver's runtime.
    fn bind(&mut self, addr: SocketAddr) -> io::Result<Box<dyn Link>>;
}

/// Binds real sockets.
pub(crate) struct UdpBinder;

impl Binder for UdpBinder {
    fn bind(&mut self, addr: SocketAddr) -> io::Result<Box<dyn Link>> {
        Ok(Box::new(UdpLink::bind(addr)?))
    }
}

/// A real UDP socket.
pub(crate) struct UdpLink {
    socket: UdpSocket,
    local: SocketAddr,
    buffers: (usize, usize),
}

impl UdpLink {
    pub(crate) fn bind(addr: SocketAddr) -> io::Result<Self> {
        let domain = Domain::for_address(addr);
        let socket = Socket::new(domain, Type::DGRAM, Some(Protocol::UDP))?;
        if addr.is_ipv6() && addr.ip().is_unspecified() {
            socket.set_only_v6(false)?;
        }
        // Refused sizes are no reason not to run: the kernel's default then stays.
        let _ = socket.set_recv_buffer_size(SOCKET_BUFFER_BYTES);
        let _ = socket.set_send_buffer_size(SOCKET_BUFFER_BYTES);
        socket.set_nonblocking(true)?;
        socket.bind(&addr.into())?;
        let buffers = (
            socket.recv_buffer_size().unwrap_or(0),
            socket.send_buffer_size().unwrap_or(0),
        );
        let socket = UdpSocket::from_std(socket.into())?;
        let local = socket.local_addr()?;
        Ok(Self {
            socket,
            local,
            buffers,
        })
    }
}

impl Link for UdpLink {
    fn try_recv(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        let (length, from) = self.socket.try_recv_from(buf)?;
        Ok((length, canonical(from)))
    }

    fn try_send(&self, bytes: &[u8], to: SocketAddr) -> io::Result<()> {
        let to = for_family(to, self.local);
        self.socket.try_send_to(bytes, to).map(|_sent| ())
    }

    fn local_addr(&self) -> SocketAddr {
        self.local
    }

    fn buffers(&self) -> (usize, usize) {
        self.buffers
    }

    fn readable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(self.socket.readable())
    }

    fn writable(&self) -> Pin<Box<dyn Future<Output = io::Result<()>> + Send + '_>> {
        Box::pin(self.socket.writable())
    }
}

/// `addr` with an IPv4 address written as such, also when a dual-stack socket reported it mapped.
pub(crate) fn canonical(addr: SocketAddr) -> SocketAddr {
    SocketAddr::new(addr.ip().to_canonical(), addr.port())
}

/// Where a socket bound to `addr` is reached on this host.
pub(crate) fn here(addr: SocketAddr) -> SocketAddr {
    let ip = match addr.ip() {
        ip if !ip.is_unspecified() => ip,
        IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
    };
    SocketAddr::new(ip, addr.port())
}

/// `addr` as a socket bound to `local` can send to it.
fn for_family(addr: SocketAddr, local: SocketAddr) -> SocketAddr {
    match (addr.ip(), local.ip()) {
        (IpAddr::V4(v4), IpAddr::V6(_)) => {
            SocketAddr::new(IpAddr::V6(v4.to_ipv6_mapped()), addr.port())
        }
        _ => addr,
    }
}

/// What an I/O error says about the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing is ready, or no room is left: try again when the socket says so.
    NotReady,
    /// One peer, one route or one datagram is at fault: count it and go on.
    Peer,
    /// The socket itself is unusable: bind a new one.
    Socket,
}

/// Sorts an error of a receive or a send.
pub(crate) fn judge(error: &io::Error) -> Fault {
    use io::ErrorKind as Kind;
    match error.kind() {
        Kind::WouldBlock => Fault::NotReady,
        Kind::Interrupted
        | Kind::ConnectionRefused
        | Kind::ConnectionReset
        | Kind::HostUnreachable
        | Kind::NetworkUnreachable
        | Kind::PermissionDenied
        | Kind::InvalidInput
        | Kind::OutOfMemory => Fault::Peer,
        Kind::AddrNotAvailable | Kind::NetworkDown | Kind::NotConnected | Kind::BrokenPipe => {
            Fault::Socket
        }
        _ => match error.raw_os_error() {
            // EMSGSIZE, ENOBUFS, EAFNOSUPPORT: this datagram, this moment, this address.
            Some(90 | 105 | 97) => Fault::Peer,
            _ => Fault::Socket,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_dual_stack_socket_talks_to_ipv4_by_its_plain_address() {
        let Ok(dual) = UdpLink::bind("[::]:0".parse().unwrap()) else {
            eprintln!("skipped: this host has no IPv6");
            return;
        };
        let plain = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        plain.writable().await.unwrap();
        let to = SocketAddr::new(Ipv4Addr::LOCALHOST.into(), dual.local_addr().port());
        plain.try_send(b"ping", to).unwrap();
        let mut buf = [0; 16];
        let (length, from) = receive(&dual, &mut buf).await;
        assert_eq!((&buf[..length], from), (&b"ping"[..], plain.local_addr()));
        dual.try_send(b"pong", from).unwrap();
        let (length, _) = receive(&plain, &mut buf).await;
        assert_eq!(&buf[..length], b"pong");
    }

    async fn receive(link: &UdpLink, buf: &mut [u8]) -> (usize, SocketAddr) {
        loop {
            link.readable().await.unwrap();
            match link.try_recv(buf) {
                Ok(got) => return got,
                Err(e) => assert_eq!(judge(&e), Fault::NotReady, "{e}"),
            }
        }
    }

    #[tokio::test]
    async fn case_49_a_taken_port_is_an_error_and_not_a_shared_socket() {
        let first = UdpLink::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let error = UdpLink::bind(first.local_addr()).err().unwrap();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn errors_are_sorted_by_what_they_concern() {
        let os = io::Error::from_raw_os_error;
        assert_eq!(judge(&io::ErrorKind::WouldBlock.into()), Fault::NotReady);
        assert_eq!(judge(&os(111)), Fault::Peer); // ECONNREFUSED
        assert_eq!(judge(&os(90)), Fault::Peer); // EMSGSIZE
        assert_eq!(judge(&os(9)), Fault::Socket); // EBADF
        assert_eq!(judge(&os(100)), Fault::Socket); // ENETDOWN
    }
}
