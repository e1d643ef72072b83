//! A whole lab: the network, its members, and load on them.
//!
//! Owns: the folder of files, the network and all members of one scenario. Promises: members end
//! before their network does; every wait has a deadline and says how far it came. Never: judges.

use std::fs::Permissions;
use std::future::Future;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use gabion_loader::local::RunDir;
use gabion_loader::mix::MixSpec;
use gabion_loader::report::Report;
use gabion_loader::run::{run, Live, Plan};
use gabion_loader::schedule::{Arrivals, Schedule};
use gabion_loader::target::Target;
use gabion_loader::template::{HitsField, Shape};

use crate::checks::Checks;
use crate::limits::{
    CALL_TIMEOUT, DAY_ROOM_S, LOOK_EVERY, MEMBER_RSS_BYTES_MAX, OVER_PER_MILLE, PATIENCE,
};
use crate::member::{self, Door, Member, MemberSpec, DOMAIN};
use crate::net::{address, Net, GOSSIP_PORT};
use crate::nginx::NginxPrograms;
use crate::relay::{LinkFaults, Relay};
use crate::LabError;

/// Length of a day, in seconds.
const DAY_S: u64 = 86_400;

/// What all scenarios are given.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The program under test.
    pub gabiond: PathBuf,
    /// The other program under test.
    pub nginx: NginxPrograms,
    /// The seed of arrivals, keys and faults.
    pub seed: u64,
}

/// What a lab is made of.
#[derive(Clone, Debug)]
pub struct LabSpec {
    /// One for each member.
    pub members: Vec<MemberSpec>,
    /// Relayed links with these faults; `None`: members reach each other over the bridge.
    pub links: Option<LinkFaults>,
    /// Whether members are told their peers before they start.
    pub introduced: bool,
    /// The key that signs frames, two hexadecimal digits that are repeated; `None`: not signed.
    pub signed: Option<&'static str>,
}

impl LabSpec {
    /// Members with the same rules, each a line as in a configuration file.
    pub fn alike(members: usize, rules: &[String]) -> LabSpec {
        let lines: String = rules.iter().map(|rule| format!("- {rule}\n")).collect();
        let member = |i: usize| MemberSpec {
            door: Door::Gabiond,
            limits: format!("limits:\n{lines}"),
            name: format!("m{}", i + 1),
            table_bytes: "8m",
            cluster: "netlab".to_owned(),
            clock_ahead_s: 0,
            keys: None,
            gabiond: None,
            pod: None,
        };
        LabSpec {
            members: (0..members).map(member).collect(),
            links: None,
            introduced: true,
            signed: None,
        }
    }

    /// The same with nginx for these members.
    #[must_use]
    pub fn with_nginx(mut self, members: &[usize]) -> LabSpec {
        for i in members {
            self.members[*i].door = Door::Nginx;
        }
        self
    }
}

/// A rule whose descriptor has the rule's name, with `limit` hits per `unit` (`d`, `m`, ...).
pub fn rule(name: &str, limit: u64, unit: &str, more: &str) -> String {
    format!(
        "{{name: {name}, domain: {DOMAIN}, rate: {limit}r/{unit}{more}, \
         descriptors: [{{key: {name}}}]}}"
    )
}

/// A running lab.
#[derive(Debug)]
pub struct Lab {
    // in this order they are dropped: processes, relay, network, files
    /// The members.
    pub members: Vec<Member>,
    /// The relay, where the scenario has one.
    pub relay: Option<Relay>,
    /// The network.
    pub net: Net,
    dir: RunDir,
    programs: Programs,
    doors: Vec<Door>,
    started: Instant,
}

/// Waits until a day has room: a daily window that ends amidst a scenario would start counts anew.
async fn wait_for_room() -> Result<(), LabError> {
    loop {
        let now = SystemTime::now().duration_since(UNIX_EPOCH);
        let now_s = now.map_err(LabError::odd)?.as_secs();
        let left_s = DAY_S - now_s % DAY_S;
        if left_s > DAY_ROOM_S {
            return Ok(());
        }
        println!("  a day ends in {left_s} s; waiting for the next one");
        tokio::time::sleep(Duration::from_secs(left_s + 1)).await;
    }
}

impl Lab {
    /// Makes the network, starts all members, and waits until they know each other where they are
    /// introduced.
    ///
    /// # Errors
    /// Anything of it fails; what was made is taken down.
    pub async fn start(programs: &Programs, spec: LabSpec) -> Result<Lab, LabError> {
        let introduced = spec.introduced;
        let mut lab = Lab::prepare(programs, spec).await?;
        for i in lab.all() {
            lab.introduce(i, introduced)?;
            lab.start_member(i).await?;
        }
        if introduced {
            lab.wait_connected(lab.members.len() - 1, PATIENCE).await?;
        }
        Ok(lab)
    }

    /// Makes the network, and starts nobody yet.
    ///
    /// # Errors
    /// Anything of it fails; what was made is taken down.
    pub async fn prepare(programs: &Programs, spec: LabSpec) -> Result<Lab, LabError> {
        wait_for_room().await?;
        let count = spec.members.len();
        let dir = RunDir::new("gabion-netlab")?;
        let net = Net::new(count)?;
        let relay = match spec.links {
            Some(faults) => Some(Relay::start(count, faults, programs.seed).await?),
            None => None,
        };
        for i in 0..count {
            write_keys(dir.path(), i, &[(1, spec.signed.unwrap_or_default())])?;
        }
        let doors = spec.members.iter().map(|member| member.door).collect();
        let members = spec.members.into_iter().enumerate().map(|(i, mut member)| {
            member.keys = spec.signed.map(|_| keys_file(dir.path(), i));
            Member::new(i, member)
        });
        Ok(Lab {
            members: members.collect::<Result<_, _>>()?,
            relay,
            net,
            dir,
            programs: programs.clone(),
            doors,
            started: Instant::now(),
        })
    }

    /// Tells member `i` all its peers, or none.
    ///
    /// # Errors
    /// The system refuses.
    pub fn introduce(&self, i: usize, all: bool) -> Result<(), LabError> {
        let mut peers = Vec::new();
        for peer in (0..self.members.len()).filter(|peer| all && *peer != i) {
            peers.push(match &self.relay {
                Some(relay) => relay.address_of(peer, i)?,
                None => SocketAddr::from((address(peer), GOSSIP_PORT)),
            });
        }
        self.members[i].set_peers(self.dir.path(), &peers)
    }

    /// Writes the key file of member `i`; it takes them with its next reload.
    ///
    /// # Errors
    /// The system refuses.
    pub fn set_keys(&self, i: usize, keys: &[(u8, &str)]) -> Result<(), LabError> {
        write_keys(self.dir.path(), i, keys)
    }

    /// Starts a member (again), with the same address and name.
    ///
    /// # Errors
    /// It does not start.
    pub async fn start_member(&mut self, i: usize) -> Result<(), LabError> {
        self.members[i].start(&self.programs, self.dir.path()).await
    }

    /// Where its files are.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    /// What member `i` has logged.
    pub fn log(&self, i: usize) -> String {
        self.members[i].log(self.dir.path())
    }

    /// All members.
    pub fn all(&self) -> Vec<usize> {
        (0..self.members.len()).collect()
    }

    /// Waits until every running member hears, and is heard by, exactly `peers` others.
    ///
    /// # Errors
    /// It does not come to that in time.
    pub async fn wait_connected(&self, peers: usize, most: Duration) -> Result<(), LabError> {
        let up = self.all().into_iter().filter(|i| self.members[*i].is_up());
        self.wait_peers(&up.collect::<Vec<_>>(), peers, most).await
    }

    /// The same for some members.
    ///
    /// # Errors
    /// It does not come to that in time.
    pub async fn wait_peers(
        &self,
        members: &[usize],
        peers: usize,
        most: Duration,
    ) -> Result<(), LabError> {
        for i in members {
            let member = &self.members[*i];
            let what = format!("{peers} peers of member {}", i + 1);
            until(&what, most, || async {
                let up = member.peers_up().await?;
                Ok(if up == peers {
                    Ok(())
                } else {
                    Err(format!("{up} are up"))
                })
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until all of `members` show `left` hits of a key, and says how long that took.
    ///
    /// # Errors
    /// They do not in time.
    pub async fn wait_left(
        &self,
        members: &[usize],
        (rule, key): (&str, &str),
        left: u64,
        most: Duration,
    ) -> Result<Duration, LabError> {
        let start = Instant::now();
        for i in members {
            let what = format!("{left} left of {rule}/{key} at member {}", i + 1);
            until(&what, most, || async {
                let seen = self.members[*i].left(rule, key).await?;
                Ok(if seen == left {
                    Ok(())
                } else {
                    Err(format!("{seen} are left"))
                })
            })
            .await?;
        }
        Ok(start.elapsed())
    }

    /// [`Loader::load`] on members of this lab.
    ///
    /// # Errors
    /// The plan cannot be run.
    pub async fn load(
        &self,
        members: &[usize],
        keys: (&str, MixSpec),
        per_s: f64,
        seconds: f64,
    ) -> Result<Report, LabError> {
        self.loader().load(members, keys, per_s, seconds).await
    }

    /// What sends load to its members, also while they come and go.
    pub fn loader(&self) -> Loader {
        Loader {
            doors: self.doors.clone(),
            seed: self.programs.seed,
        }
    }

    /// What must hold at the end of every scenario: nobody crashed, no loop was started again,
    /// memory stayed within its bound.
    ///
    /// # Errors
    /// A member does not answer.
    pub async fn check_health(&mut self, checks: &mut Checks) -> Result<(), LabError> {
        let mut most_bytes = 0;
        for i in self.all() {
            let crash = self.members[i].crash();
            let log = self.log(i);
            let deaths = ["panicked", "exited on signal"].map(|word| log.matches(word).count());
            let deaths: usize = deaths.iter().sum();
            let well = crash.is_none() && deaths == 0;
            if !well {
                let how = crash.map_or_else(|| format!("{deaths} panics"), |e| e.to_string());
                checks.holds(format!("member {} lives", i + 1), false, how);
                continue;
            }
            if !self.members[i].is_up() {
                continue;
            }
            let restarts = self.members[i]
                .number("/gossip/driver_counters/restarts")
                .await?;
            if restarts != 0 {
                checks.holds("no gossip loop was started again", false, restarts);
            }
            most_bytes = most_bytes.max(self.members[i].resident_most_bytes().unwrap_or(u64::MAX));
        }
        let mib = most_bytes >> 20;
        checks.within(
            "most memory of a member, MiB",
            mib,
            1,
            MEMBER_RSS_BYTES_MAX >> 20,
        );
        checks.fact(
            "took",
            format!("{:.1} s", self.started.elapsed().as_secs_f64()),
        );
        Ok(())
    }
}

/// Sends load to the members of a lab; a value of its own, so that it can run beside changes.
#[derive(Clone, Debug)]
pub struct Loader {
    doors: Vec<Door>,
    seed: u64,
}

impl Loader {
    /// Open-loop load: independent arrivals on the members in turn, over gRPC or HTTP as each has
    /// it.
    ///
    /// # Errors
    /// The plan cannot be run.
    pub async fn load(
        &self,
        members: &[usize],
        (rule, keys): (&str, MixSpec),
        per_s: f64,
        seconds: f64,
    ) -> Result<Report, LabError> {
        let some = |door| {
            let of_door = |i: &&usize| self.doors[**i] == door;
            let some: Vec<usize> = members.iter().filter(of_door).copied().collect();
            let share = some.len() as f64 / members.len() as f64;
            self.load_of(door, some, (rule, keys.clone()), per_s * share, seconds)
        };
        let (one, two) = tokio::join!(some(Door::Gabiond), some(Door::Nginx));
        Ok(match (one?, two?) {
            (Some(one), Some(two)) => both(one, two),
            (one, two) => one.or(two).unwrap_or_default(),
        })
    }

    async fn load_of(
        &self,
        door: Door,
        members: Vec<usize>,
        (rule, keys): (&str, MixSpec),
        per_s: f64,
        seconds: f64,
    ) -> Result<Option<Report>, LabError> {
        if members.is_empty() {
            return Ok(None);
        }
        let targets = members.iter().map(|i| member::target(door, *i).parse());
        let targets: Result<Vec<Target>, _> = targets.collect();
        let schedule = Schedule::constant(per_s, seconds).map_err(LabError::odd)?;
        let shape = match door {
            Door::Gabiond => Shape::grpc(DOMAIN, &[format!("{rule}={{key}}")], HitsField::Request),
            Door::Nginx => Shape::http(&format!("/{rule}?k={{key}}"), &[]),
        };
        let plan = Plan {
            schedule: schedule.spread(Arrivals::Independent),
            targets: targets.map_err(LabError::odd)?,
            mix: keys,
            seed: self.seed,
            shape: shape.map_err(LabError::odd)?,
            concurrency: 512,
            connections: 1,
            timeout: CALL_TIMEOUT,
        };
        let report = run(plan, Arc::new(Live::default())).await;
        report.map(Some).map_err(LabError::odd)
    }
}

fn keys_file(dir: &Path, i: usize) -> PathBuf {
    dir.join(format!("keys-{}", i + 1))
}

/// Each key by its id and two hexadecimal digits that are repeated. For its owner only.
fn write_keys(dir: &Path, i: usize, keys: &[(u8, &str)]) -> Result<(), LabError> {
    let lines = keys
        .iter()
        .map(|(id, digits)| format!("{id}:{}\n", digits.repeat(32)));
    let part = dir.join(format!("keys-{}.part", i + 1));
    std::fs::write(&part, lines.collect::<String>())?;
    std::fs::set_permissions(&part, Permissions::from_mode(0o600))?;
    std::fs::rename(part, keys_file(dir, i))?;
    Ok(())
}

/// Two loads that ran at the same time; of their latencies the worse one.
fn both(one: Report, two: Report) -> Report {
    let worse = if one.latency.p99_us >= two.latency.p99_us {
        one.latency
    } else {
        two.latency
    };
    Report {
        offered: one.offered + two.offered,
        sent: one.sent + two.sent,
        late: one.late + two.late,
        unsent: one.unsent + two.unsent,
        admitted: one.admitted + two.admitted,
        denied: one.denied + two.denied,
        error_count: one.error_count + two.error_count,
        elapsed_s: one.elapsed_s.max(two.elapsed_s),
        seed: one.seed,
        latency: worse,
        ..Report::default()
    }
}

/// What a shared limit may admit in all: the limit, and 1 % or one hit per member more.
pub fn most_admitted(limit: u64, members: usize) -> u64 {
    limit + (limit * OVER_PER_MILLE / 1_000).max(members as u64)
}

/// Looks until `look` gives a value; its error text says how far it is.
///
/// # Errors
/// It gives none in time, or fails.
pub async fn until<T, F>(
    what: &str,
    most: Duration,
    mut look: impl FnMut() -> F,
) -> Result<T, LabError>
where
    F: Future<Output = Result<Result<T, String>, LabError>>,
{
    let start = Instant::now();
    loop {
        match look().await? {
            Ok(found) => return Ok(found),
            Err(seen) if start.elapsed() > most => {
                return Err(LabError::Late {
                    what: format!("{what}: {seen}"),
                    seconds: most.as_secs(),
                });
            }
            Err(_) => tokio::time::sleep(LOOK_EVERY).await,
        }
    }
}

/// One key.
pub fn one(key: &str) -> MixSpec {
    MixSpec::Single(key.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_with_what_was_seen_last() {
        let mut n = 0;
        let found = until("three", PATIENCE, || {
            n += 1;
            async move { Ok(if n == 3 { Ok(n) } else { Err(n.to_string()) }) }
        });
        assert_eq!(found.await.unwrap(), 3);
        let never = until("more", Duration::from_millis(20), || async {
            Ok(Err::<(), _>("too few".to_owned()))
        });
        let error = never.await.unwrap_err().to_string();
        assert!(error.contains("more: too few"), "{error}");
    }

    #[test]
    fn the_bound_is_a_percent_or_a_hit_for_each() {
        assert_eq!(most_admitted(2_000, 4), 2_020);
        assert_eq!(most_admitted(5, 10), 15);
    }

    #[test]
    fn rules_are_lines_of_a_configuration() {
        let text = rule("a", 20, "d", ", cardinality: 100");
        assert!(
            text.contains("rate: 20r/d, cardinality: 100, descriptors: [{key: a}]"),
            "{text}"
        );
    }
}
