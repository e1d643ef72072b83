//! `DnsPeers` against a real name server on loopback, over UDP and, for long answers, over TCP.

use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::StreamExt;
use gabion_discovery::{DnsPeers, PeerDiscovery, PeerSet, PeerStream, Report};
use tokio::time::timeout;

const A: u16 = 1;
const AAAA: u16 = 28;
const SERVFAIL: u8 = 2;
const NXDOMAIN: u8 = 3;

/// What the server says to every question.
#[derive(Clone, Default)]
struct Zone {
    addresses: BTreeSet<IpAddr>,
    ttl_s: u32,
    /// Response code to A and to AAAA questions; 0 is a good answer.
    codes: [u8; 2],
    /// Answers over UDP are cut, so that the client comes again over TCP.
    truncate: bool,
}

#[derive(Clone)]
struct Server {
    addr: SocketAddr,
    zone: Arc<Mutex<Zone>>,
    names: Arc<Mutex<BTreeSet<String>>>,
}

impl Server {
    /// Serves on a port that the kernel picks, until the program ends.
    fn start(zone: Zone) -> Server {
        let (udp, tcp) = loop {
            let udp = UdpSocket::bind("127.0.0.1:0").expect("a port");
            // The same number may be taken for TCP: then another one.
            if let Ok(tcp) = TcpListener::bind(udp.local_addr().expect("bound")) {
                break (udp, tcp);
            }
        };
        let addr = udp.local_addr().expect("bound");
        let names = Arc::default();
        let server = Server {
            addr,
            zone: Arc::new(Mutex::new(zone)),
            names,
        };
        let by_udp = server.clone();
        std::thread::spawn(move || {
            let mut question = [0u8; 1500];
            while let Ok((len, from)) = udp.recv_from(&mut question) {
                if let Some(answer) = by_udp.answer(&question[..len], false) {
                    let _ = udp.send_to(&answer, from);
                }
            }
        });
        let by_tcp = server.clone();
        std::thread::spawn(move || {
            for mut stream in tcp.incoming().flatten() {
                let mut len = [0u8; 2];
                while stream.read_exact(&mut len).is_ok() {
                    let mut question = vec![0u8; usize::from(u16::from_be_bytes(len))];
                    if stream.read_exact(&mut question).is_err() {
                        break;
                    }
                    let Some(answer) = by_tcp.answer(&question, true) else {
                        break;
                    };
                    let len = u16::try_from(answer.len())
                        .expect("a short answer")
                        .to_be_bytes();
                    let _ = stream.write_all(&[&len[..], &answer].concat());
                }
            }
        });
        server
    }

    fn set(&self, change: impl FnOnce(&mut Zone)) {
        change(&mut self.zone.lock().expect("the zone"));
    }

    fn answer(&self, question: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let zone = self.zone.lock().expect("the zone").clone();
        let mut at = 12;
        let mut name = String::new();
        while *question.get(at)? != 0 {
            let len = usize::from(question[at]);
            name += &String::from_utf8_lossy(question.get(at + 1..at + 1 + len)?);
            name.push('.');
            at += 1 + len;
        }
        let kind = u16::from_be_bytes([*question.get(at + 1)?, *question.get(at + 2)?]);
        let asked = question.get(12..at + 5)?;
        self.names.lock().expect("the names").insert(name);
        let code = zone.codes[usize::from(kind != A)];
        let cut = zone.truncate && !tcp;
        let wanted = |ip: &&IpAddr| code == 0 && !cut && ip.is_ipv4() == (kind == A);
        let records: Vec<&IpAddr> = zone
            .addresses
            .iter()
            .filter(wanted)
            .filter(|_| kind == A || kind == AAAA)
            .collect();
        let count = u16::try_from(records.len())
            .expect("few records")
            .to_be_bytes();
        let mut out = vec![
            question[0],
            question[1],
            0x85 | u8::from(cut) << 1,
            0x80 | code,
        ];
        out.extend([0, 1, count[0], count[1], 0, 0, 0, 0]);
        out.extend(asked);
        for ip in records {
            let data = match ip {
                IpAddr::V4(ip) => ip.octets().to_vec(),
                IpAddr::V6(ip) => ip.octets().to_vec(),
            };
            // A pointer to the question's name, then type, class IN, life, length, address.
            out.extend([0xC0, 12]);
            out.extend(kind.to_be_bytes());
            out.extend([0, 1]);
            out.extend(zone.ttl_s.to_be_bytes());
            out.extend([0, u8::try_from(data.len()).expect("an address")]);
            out.extend(data);
        }
        Some(out)
    }
}

fn zone(addresses: &[&str]) -> Zone {
    let addresses = addresses
        .iter()
        .map(|a| a.parse().expect("an address"))
        .collect();
    Zone {
        addresses,
        ..Zone::default()
    }
}

fn watch(server: &Server) -> (PeerStream, Arc<Mutex<Vec<String>>>) {
    let said: Arc<Mutex<Vec<String>>> = Arc::default();
    let sink = said.clone();
    let report: Report =
        Arc::new(move |error| sink.lock().expect("the list").push(error.to_string()));
    let peers = DnsPeers::parse("peers.gabion.test.:7946").expect("a name");
    (
        Box::new(peers.asking(vec![server.addr]).reporting(report)).peers(),
        said,
    )
}

/// The next set; the bound is far beyond what is expected, so that a slow machine does not matter.
async fn next(peers: &mut PeerStream) -> PeerSet {
    timeout(Duration::from_secs(20), peers.next())
        .await
        .expect("no set")
        .expect("it ended")
}

fn set(addresses: &[&str]) -> PeerSet {
    addresses
        .iter()
        .map(|a| a.parse().expect("an address"))
        .collect()
}

#[tokio::test]
async fn both_families_are_found_and_changes_follow_by_time_to_live() {
    let server = Server::start(zone(&["10.0.0.1", "10.0.0.2", "fd00::1"]));
    let (mut peers, said) = watch(&server);
    let first = set(&["10.0.0.1:7946", "10.0.0.2:7946", "[fd00::1]:7946"]);
    assert_eq!(next(&mut peers).await, first);
    assert_eq!(
        *server.names.lock().expect("the names"),
        BTreeSet::from(["peers.gabion.test.".into()])
    );
    server.set(|z| *z = zone(&["10.0.0.3"]));
    assert_eq!(next(&mut peers).await, set(&["10.0.0.3:7946"]));
    assert!(said.lock().expect("the list").is_empty());
}

#[tokio::test]
async fn case_45_a_name_server_that_fails_keeps_the_peers_and_is_asked_again() {
    let server = Server::start(Zone {
        codes: [SERVFAIL; 2],
        ..zone(&["10.0.0.1"])
    });
    let (mut peers, said) = watch(&server);
    let early = timeout(Duration::from_millis(300), peers.next()).await;
    assert!(early.is_err(), "a failure is no set: {early:?}");
    server.set(|z| z.codes = [0; 2]);
    assert_eq!(next(&mut peers).await, set(&["10.0.0.1:7946"]));
    assert!(said.lock().expect("the list")[0].contains("peers.gabion.test."));
    // It fails again, then only for one family: what was found stays, what is new is added.
    server.set(|z| {
        *z = Zone {
            codes: [SERVFAIL; 2],
            ..zone(&["10.0.0.2"])
        }
    });
    let outage = timeout(Duration::from_millis(1_500), peers.next()).await;
    assert!(outage.is_err(), "the peers stay: {outage:?}");
    server.set(|z| {
        *z = Zone {
            codes: [0, SERVFAIL],
            ..zone(&["10.0.0.2"])
        }
    });
    assert_eq!(next(&mut peers).await, set(&["10.0.0.2:7946"]));
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_an_empty_set_and_found_when_it_appears() {
    let server = Server::start(Zone {
        codes: [NXDOMAIN; 2],
        ..zone(&["10.0.0.1"])
    });
    let (mut peers, _) = watch(&server);
    assert_eq!(next(&mut peers).await, PeerSet::new());
    server.set(|z| z.codes = [0; 2]);
    assert_eq!(next(&mut peers).await, set(&["10.0.0.1:7946"]));
}

#[tokio::test]
async fn case_42_five_hundred_peers_come_over_tcp_when_the_answer_is_cut() {
    let many: Vec<String> = (0..500)
        .map(|i| format!("10.1.{}.{}", i / 250, i % 250))
        .collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let server = Server::start(Zone {
        truncate: true,
        ..zone(&many)
    });
    let (mut peers, _) = watch(&server);
    assert_eq!(next(&mut peers).await.len(), 500);
}
