//! Just enough of a member to feed another one: answers its hello, acknowledges its frames, sends
//! rows. Keeps no counts, so that its memory does not count.

use std::net::SocketAddr;

use gabion_node::{Input, Node, Now};
use gabion_rule::Key;
use gabion_wire::{
    decode, FrameWriter, Header, Hello, ReplayWindow, Scope, Section, WriteError,
    FLAG_INTRODUCTION, MAX_FRAME_BYTES,
};

/// A counterfeit member.
pub(crate) struct FakePeer {
    addr: SocketAddr,
    header: Header,
    window: Option<ReplayWindow>,
    /// The nonce to echo.
    echo: Option<u64>,
    ack_owed: bool,
}

/// Any number will do: nobody attacks a benchmark.
const NONCE: u64 = 0x6265_6e63_6821;

impl FakePeer {
    pub(crate) fn new(addr: SocketAddr, cluster: u32, node: u64) -> FakePeer {
        let header = Header::new(cluster, node, node + 1_000, 1);
        FakePeer {
            addr,
            header,
            window: None,
            echo: None,
            ack_owed: false,
        }
    }

    pub(crate) fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Takes a frame that the member sent here.
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        let Ok(frame) = decode(bytes) else { return };
        for section in frame.sections() {
            if let Section::Hello(hello) = section {
                self.echo = Some(hello.nonce);
            }
        }
        if !frame.header.is_introduction() {
            let h = &frame.header;
            let window = self
                .window
                .get_or_insert_with(|| ReplayWindow::new(h.incarnation, h.session));
            self.ack_owed |= window.accept(h).is_ok();
        }
    }

    fn write(
        &mut self,
        now: Now,
        flags: u8,
        fill: impl FnOnce(&mut FrameWriter<'_>) -> Result<(), WriteError>,
    ) -> Result<Vec<u8>, WriteError> {
        let mut buf = [0u8; MAX_FRAME_BYTES];
        let header = Header {
            flags,
            sent_at_us: now.cluster_ns / 1_000,
            ..self.header
        };
        let mut writer = FrameWriter::new(&mut buf, &header, None)?;
        fill(&mut writer)?;
        let n = writer.finish();
        self.header.seq += u64::from(flags & FLAG_INTRODUCTION == 0);
        Ok(buf[..n].to_vec())
    }

    /// Gives the member the answers that are due.
    pub(crate) fn answer(&mut self, node: &mut Node, now: Now) -> Result<(), WriteError> {
        if let Some(nonce) = self.echo.take() {
            let hello = Hello {
                nonce: NONCE,
                echo: Some(nonce),
                wants_digests: false,
            };
            let frame = self.write(now, FLAG_INTRODUCTION, |w| w.hello(&hello))?;
            node.handle(
                Input::Datagram {
                    from: self.addr,
                    bytes: &frame,
                },
                now,
            );
        }
        let due = std::mem::take(&mut self.ack_owed);
        let ack = self
            .window
            .as_ref()
            .filter(|_| due)
            .and_then(|window| window.ack(100));
        if let Some(ack) = ack {
            let frame = self.write(now, 0, |w| w.ack(&ack))?;
            node.handle(
                Input::Datagram {
                    from: self.addr,
                    bytes: &frame,
                },
                now,
            );
        }
        Ok(())
    }

    /// Gives the member this peer's own counts of some keys.
    pub(crate) fn rows(
        &mut self,
        node: &mut Node,
        now: Now,
        scope: &Scope,
        keys: &[Key],
        count: u32,
    ) -> Result<(), WriteError> {
        let mut rest = keys;
        while !rest.is_empty() {
            let mut taken = 0;
            let frame = self.write(now, 0, |w| {
                let mut section = w.rows(scope)?;
                taken = rest
                    .iter()
                    .take_while(|key| section.push(**key, count).is_ok())
                    .count();
                section.finish().map(|_| ())
            })?;
            node.handle(
                Input::Datagram {
                    from: self.addr,
                    bytes: &frame,
                },
                now,
            );
            rest = &rest[taken..];
        }
        Ok(())
    }
}
