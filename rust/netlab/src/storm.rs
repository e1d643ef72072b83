//! Garbage at a gossip port, fast.
//!
//! Owns: the datagrams of the storm. Promises: it ends after its time, sends only to one address of
//! the lab, and says how many left. Never: sends anything a member could take for news.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use gabion_loader::mix::SplitMix64;

use crate::LabError;

/// Datagrams that leave together between two looks at the clock.
const BURST: u64 = 50;
/// Largest datagram of the storm.
const BYTES_MAX: u64 = 1_400;

/// Random bytes of random length; a third of them begin like a real frame, when there is one.
fn garbage(random: &mut SplitMix64, real: Option<&[u8]>, buf: &mut [u8]) -> usize {
    let length = usize::try_from(1 + random.below(BYTES_MAX)).unwrap_or(1);
    for chunk in buf[..length].chunks_mut(8) {
        let bytes = random.next_u64().to_le_bytes();
        chunk.copy_from_slice(&bytes[..chunk.len()]);
    }
    if let (Some(real), 0) = (real, random.below(3)) {
        let head = real.len().min(length).min(16);
        buf[..head].copy_from_slice(&real[..head]);
    }
    length
}

/// Sends garbage to `to` from a port of its own; gives how many datagrams left, and in what time.
/// Blocks: for a thread.
///
/// # Errors
/// No socket can be had.
pub fn blow(
    to: SocketAddr,
    per_s: u64,
    length: Duration,
    seed: u64,
    real: Option<&[u8]>,
) -> Result<(u64, Duration), LabError> {
    let socket = UdpSocket::bind((crate::net::LAB_ADDRESS, 0))?;
    let mut random = SplitMix64::new(seed);
    let mut buf = [0u8; 1_408];
    let start = Instant::now();
    let mut sent = 0;
    while start.elapsed() < length {
        let due = u64::try_from(start.elapsed().as_millis()).unwrap_or(u64::MAX) * per_s / 1_000;
        if sent >= due {
            // early: the pace is the point, not a wait for anything
            std::thread::sleep(Duration::from_micros(500));
            continue;
        }
        for _ in 0..BURST.min(due - sent) {
            let n = garbage(&mut random, real, &mut buf);
            // what the kernel has no room for is part of a storm
            let _ = socket.send_to(&buf[..n], to);
            sent += 1;
        }
    }
    Ok((sent, start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn garbage_has_every_length_and_follows_from_its_seed() {
        println!("seed 9");
        let real = [7u8; 40];
        let draw = || {
            let (mut random, mut buf) = (SplitMix64::new(9), [0u8; 1_408]);
            (0..500)
                .map(|_| {
                    let n = garbage(&mut random, Some(&real), &mut buf);
                    buf[..n].to_vec()
                })
                .collect::<Vec<_>>()
        };
        let all = draw();
        assert_eq!(all, draw());
        assert!(all.iter().any(|one| one.len() < 60) && all.iter().any(|one| one.len() > 1_300));
        let like_real = all.iter().filter(|one| one.starts_with(&[7; 8])).count();
        assert!((100..250).contains(&like_real), "{like_real}");
    }
}
