//! The network of a lab: a bridge in this program's own network namespace, one namespace per
//! member behind it, and a packet filter on the bridge.
//!
//! Owns: these interfaces, namespaces and filter rules. Promises: they are gone when [`Net`] is
//! dropped, and in any case when this program ends, since the namespace it runs in ends with it.
//! Never: works in a network that has anything but loopback in it.

use std::fmt::Write as _;
use std::io::Write as _;
use std::net::Ipv4Addr;
use std::process::{Command, Stdio};

use crate::limits::MEMBERS_MAX;
use crate::LabError;

const BRIDGE: &str = "br0";

/// Where a member's gossip is bound.
pub const GOSSIP_PORT: u16 = 7946;

/// The address of the bridge: where load comes from, and where the relay stands.
pub const LAB_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 254);

/// The address of member `i`, from 0.
pub fn address(i: usize) -> Ipv4Addr {
    let host = u8::try_from(i + 1).unwrap_or(u8::MAX);
    Ipv4Addr::new(10, 77, 0, host)
}

/// The namespace of member `i`.
pub fn namespace(i: usize) -> String {
    format!("m{}", i + 1)
}

/// What the filter does with gossip between members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Frames of one member to another one are dropped, not those the other way.
    OneWay {
        /// The sender.
        from: usize,
        /// The receiver that never gets them.
        to: usize,
    },
    /// Each datagram that any member sends is dropped with this probability.
    Loss {
        /// From 0 to 100.
        percent: u8,
    },
    /// A member and this TCP port of the lab's own address do not reach each other.
    NoService {
        /// The member.
        member: usize,
        /// The port.
        port: u16,
    },
}

/// All faults that cut two groups of members apart.
pub fn cut(left: &[usize], right: &[usize]) -> Vec<Fault> {
    let pairs = left.iter().flat_map(|a| right.iter().map(|b| (*a, *b)));
    pairs
        .flat_map(|(a, b)| [(a, b), (b, a)])
        .map(|(from, to)| Fault::OneWay { from, to })
        .collect()
}

/// The ruleset of some faults; it replaces the one before at once. Only UDP and the services that
/// are named are touched, so that clients are always answered.
fn ruleset(faults: &[Fault]) -> String {
    let (mut rules, mut own) = (String::new(), String::new());
    for fault in faults {
        let line = match fault {
            Fault::OneWay { from, to } => {
                let (from, to) = (address(*from), address(*to));
                format!("ip saddr {from} ip daddr {to} meta l4proto udp counter drop")
            }
            Fault::Loss { percent } => {
                format!("meta l4proto udp numgen random mod 100 < {percent} counter drop")
            }
            Fault::NoService { member, port } => {
                let (here, there) = (address(*member), LAB_ADDRESS);
                // what the lab itself sends does not come in by a port of the bridge
                let _ = writeln!(
                    own,
                    "        ip saddr {there} ip daddr {here} tcp sport {port} counter drop"
                );
                format!("ip saddr {here} ip daddr {there} tcp dport {port} counter drop")
            }
        };
        let _ = writeln!(rules, "        {line}");
    }
    format!(
        "table bridge gabion
delete table bridge gabion
table bridge gabion {{
    chain frames {{
        type filter hook prerouting priority 0; policy accept;
{rules}    }}
    chain own {{
        type filter hook output priority 0; policy accept;
{own}    }}
}}
"
    )
}

/// A bridge with one namespace per member.
#[derive(Debug)]
pub struct Net {
    members: usize,
}

impl Net {
    /// Makes it.
    ///
    /// # Errors
    /// This is no network of its own, there are too many members, or a tool fails.
    pub fn new(members: usize) -> Result<Net, LabError> {
        refuse_the_machines_own_network()?;
        if !(1..=MEMBERS_MAX).contains(&members) {
            let why = format!("{members} members: from 1 to {MEMBERS_MAX} are possible");
            return Err(LabError::Odd(why));
        }
        let net = Net { members }; // from here on, what was made is taken down again
        ip("link set lo up")?;
        ip(&format!("link add {BRIDGE} type bridge"))?;
        ip(&format!("link set {BRIDGE} up"))?;
        ip(&format!("addr add {LAB_ADDRESS}/24 dev {BRIDGE}"))?;
        for i in 0..members {
            let name = namespace(i);
            ip(&format!("netns add {name}"))?;
            ip(&format!(
                "link add {name} type veth peer name eth0 netns {name}"
            ))?;
            ip(&format!("link set {name} master {BRIDGE} up"))?;
            ip(&format!("-n {name} addr add {}/24 dev eth0", address(i)))?;
            ip(&format!("-n {name} link set lo up"))?;
            ip(&format!("-n {name} link set eth0 up"))?;
        }
        Ok(net)
    }

    /// Puts these faults in force, in place of those before.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn set_faults(&self, faults: &[Fault]) -> Result<(), LabError> {
        run("nft", &["-f", "-"], &ruleset(faults)).map(|_| ())
    }

    /// Lets member `i` send to addresses beyond the lab, such as `10.78.0.0/16`: the lab takes
    /// these packets and drops them.
    ///
    /// # Errors
    /// The kernel refuses the route.
    pub fn swallow(&self, i: usize, addresses: &str) -> Result<(), LabError> {
        let name = namespace(i);
        ip(&format!(
            "-n {name} route add {addresses} via {LAB_ADDRESS}"
        ))
        .map(|_| ())
    }

    /// Starts counting the datagrams that other members send to member `i`; those counted before
    /// are forgotten.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn count_to(&self, i: usize) -> Result<(), LabError> {
        let (name, to) = (counter_table(i), address(i));
        let text = format!(
            "table bridge {name}\ndelete table bridge {name}\ntable bridge {name} {{\n \
             counter sent {{}}\n chain frames {{\n  \
             type filter hook prerouting priority -1; policy accept;\n  \
             ip daddr {to} meta l4proto udp counter name sent\n }}\n}}\n"
        );
        run("nft", &["-f", "-"], &text).map(|_| ())
    }

    /// How many datagrams others have sent to member `i` since [`Net::count_to`].
    ///
    /// # Errors
    /// They are not counted, or the tool fails.
    pub fn sent_to(&self, i: usize) -> Result<u64, LabError> {
        let name = counter_table(i);
        let said = run("nft", &["list", "counter", "bridge", &name, "sent"], "")?;
        packets(&said).ok_or_else(|| LabError::Odd(format!("nft does not count: {said}")))
    }

    /// Lets every UDP send of member `i` fail (`is_off`), or work again: its kernel answers each
    /// with an error.
    ///
    /// # Errors
    /// The kernel refuses the rules.
    pub fn refuse_sending(&self, i: usize, is_off: bool) -> Result<(), LabError> {
        let rule = if is_off { "meta l4proto udp drop" } else { "" };
        let text = format!(
            "table inet gabion\ndelete table inet gabion\ntable inet gabion {{\n chain out {{\n  \
             type filter hook output priority 0; policy accept;\n  {rule}\n }}\n}}\n"
        );
        let name = namespace(i);
        run("ip", &["netns", "exec", &name, "nft", "-f", "-"], &text).map(|_| ())
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        // what was not made, or is gone, need not be removed
        for i in 0..self.members {
            let _ = ip(&format!("link del {}", namespace(i)));
            let _ = ip(&format!("netns del {}", namespace(i)));
        }
        let _ = ip(&format!("link del {BRIDGE}"));
        let _ = run("nft", &["flush", "ruleset", "bridge"], "");
    }
}

fn counter_table(i: usize) -> String {
    format!("gabion_to_{}", namespace(i))
}

/// The number behind `packets` in what nft prints of a counter.
fn packets(said: &str) -> Option<u64> {
    let (_, rest) = said.split_once("packets ")?;
    rest.split_ascii_whitespace().next()?.parse().ok()
}

/// In a fresh namespace there is loopback alone, and after a lab there is again.
fn refuse_the_machines_own_network() -> Result<(), LabError> {
    // two lines of headings, then `name: counters`
    let text = std::fs::read_to_string("/proc/net/dev")?;
    let mut names = text
        .lines()
        .skip(2)
        .filter_map(|line| line.split(':').next());
    match names.find(|name| name.trim() != "lo") {
        Some(name) => Err(LabError::Outside(name.trim().to_owned())),
        None => Ok(()),
    }
}

fn ip(arguments: &str) -> Result<String, LabError> {
    let arguments: Vec<&str> = arguments.split(' ').collect();
    run("ip", &arguments, "")
}

/// Runs a tool to its end with `input`; gives what it printed.
fn run(program: &str, arguments: &[&str], input: &str) -> Result<String, LabError> {
    let failed = |what: String| LabError::Tool {
        command: format!("{program} {}", arguments.join(" ")),
        what,
    };
    let mut child = Command::new(program)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| failed(format!("{e}; install iproute2 and nftables")))?;
    if let Some(mut pipe) = child.stdin.take() {
        pipe.write_all(input.as_bytes())?;
    }
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(failed(format!("{}: {}", output.status, said.trim())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cut_names_each_pair_both_ways_and_touches_nobody_else() {
        let faults = cut(&[0], &[2, 3]);
        assert_eq!(faults.len(), 4);
        let rules = ruleset(&faults);
        for (from, to) in [(1, 3), (3, 1), (1, 4), (4, 1)] {
            let line = format!("ip saddr 10.77.0.{from} ip daddr 10.77.0.{to} meta l4proto udp");
            assert_eq!(rules.matches(&line).count(), 1, "{rules}");
        }
        assert_eq!(rules.matches(" drop\n").count(), 4);
    }

    #[test]
    fn without_faults_everything_passes() {
        assert!(!ruleset(&[]).contains("drop"));
        assert!(ruleset(&[Fault::Loss { percent: 30 }]).contains("mod 100 < 30 counter drop"));
    }

    #[test]
    fn a_service_is_cut_off_in_both_directions() {
        let fault = Fault::NoService {
            member: 1,
            port: 6443,
        };
        let rules = ruleset(&[fault]);
        let (frames, own) = rules.split_once("chain own").unwrap();
        let there = "ip saddr 10.77.0.2 ip daddr 10.77.0.254 tcp dport 6443 counter drop";
        let back = "ip saddr 10.77.0.254 ip daddr 10.77.0.2 tcp sport 6443 counter drop";
        assert!(frames.contains(there) && own.contains(back), "{rules}");
    }

    #[test]
    fn counted_datagrams_are_read_from_what_nft_prints() {
        let said = "table bridge t {\n\tcounter sent {\n\t\tpackets 17 bytes 900\n\t}\n}\n";
        assert_eq!(packets(said), Some(17));
        assert_eq!(packets("no counter"), None);
    }

    #[test]
    fn a_tool_that_fails_is_shown_with_its_words() {
        let error = run("sh", &["-c", "echo no luck >&2; exit 3"], "").unwrap_err();
        assert!(error.to_string().contains("no luck"), "{error}");
        let error = run("no-such-tool-here", &[], "").unwrap_err();
        assert!(error.to_string().contains("install iproute2"), "{error}");
    }

    #[test]
    fn the_machines_own_network_is_refused() {
        // Where tests run there is at least loopback; only a namespace of its own has no more.
        let text = std::fs::read_to_string("/proc/net/dev").unwrap();
        let alone = text.lines().count() == 3;
        assert_eq!(refuse_the_machines_own_network().is_ok(), alone, "{text}");
    }
}
