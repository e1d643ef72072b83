//! Sockets that listen, TCP or Unix.
//!
//! I own the file of a Unix socket: I replace one that nobody listens on, refuse one that somebody
//! does, and remove mine when its guard goes. I never touch a file that is no socket.

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::task::{Context, Poll};

use socket2::{Domain, SockAddr, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};

use crate::config::Bind;
use crate::limits::BACKLOG;

/// A bound socket.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Unix(UnixListener),
}

impl Listener {
    /// Binds `bind`; gives the address in use too, and the guard of its file if it has one.
    pub(super) fn bind(bind: &Bind, mode: u32) -> io::Result<(Self, Bind, Option<SocketFile>)> {
        match bind {
            Bind::Tcp(addr) => {
                let socket = socket2::Socket::new(Domain::for_address(*addr), Type::STREAM, None)?;
                // A restart need not wait for the connections of the process before.
                socket.set_reuse_address(true)?;
                socket.bind(&(*addr).into())?;
                socket.listen(BACKLOG)?;
                socket.set_nonblocking(true)?;
                let listener = TcpListener::from_std(socket.into())?;
                let bound = Bind::Tcp(listener.local_addr()?);
                Ok((Listener::Tcp(listener), bound, None))
            }
            Bind::Unix(path) => {
                clear(path)?;
                let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
                socket.bind(&SockAddr::unix(path)?)?;
                let file = SocketFile::of(path)?;
                // Between bind and listen nobody can connect: there is no moment with another mode.
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
                socket.listen(BACKLOG)?;
                socket.set_nonblocking(true)?;
                let listener = UnixListener::from_std(socket.into())?;
                Ok((Listener::Unix(listener), bind.clone(), Some(file)))
            }
        }
    }

    pub(super) async fn accept(&self) -> io::Result<Socket> {
        match self {
            Listener::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // A socket that refuses the option still works, only later.
                let _ = stream.set_nodelay(true);
                Ok(Socket::Tcp(stream))
            }
            Listener::Unix(listener) => Ok(Socket::Unix(listener.accept().await?.0)),
        }
    }
}

/// Removes the file of a socket that nobody listens on.
fn clear(path: &Path) -> io::Result<()> {
    let about = match std::fs::symlink_metadata(path) {
        Ok(about) => about,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    let taken = |what: &str| Err(io::Error::new(io::ErrorKind::AddrInUse, what.to_owned()));
    if !about.file_type().is_socket() {
        return taken("there is a file of that name that is no socket");
    }
    let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        // Only this says that nobody is there; a full queue, say, is somebody.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            tracing::info!(
                "{}: nobody listens on it any more; replaced",
                path.display()
            );
            std::fs::remove_file(path)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Err(error),
        Ok(()) | Err(_) => taken("another process listens on this socket"),
    }
}

/// The file of a Unix socket; removed with its guard, unless another has taken its place.
#[derive(Debug)]
pub struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn of(path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            identity: identity(path)?,
        })
    }
}

fn identity(path: &Path) -> io::Result<(u64, u64)> {
    std::fs::symlink_metadata(path).map(|about| (about.dev(), about.ino()))
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if identity(&self.path).is_ok_and(|now| now == self.identity) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// A connection, TCP or Unix.
#[derive(Debug)]
pub(super) enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    /// Who is at the other end, for log lines.
    pub(super) fn peer(&self) -> String {
        match self {
            Socket::Tcp(stream) => stream
                .peer_addr()
                .map_or_else(|_| "somebody".to_owned(), |addr| addr.to_string()),
            Socket::Unix(_) => "a local process".to_owned(),
        }
    }
}

/// Calls the same method of whichever stream it is.
macro_rules! either {
    ($this:expr, $stream:ident => $call:expr) => {
        match $this.get_mut() {
            Socket::Tcp(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
            Socket::Unix(stream) => {
                let $stream = Pin::new(stream);
                $call
            }
        }
    };
}

impl AsyncRead for Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Socket {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write(cx, bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        either!(self, stream => stream.poll_write_vectored(cx, slices))
    }

    fn is_write_vectored(&self) -> bool {
        true // both kinds are
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        either!(self, stream => stream.poll_shutdown(cx))
    }
}
