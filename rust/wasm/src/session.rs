//! One world on a page: time, commands, looks.
//!
//! I own the commands and the counter in focus. I promise: what is refused changes nothing; `run`
//! and `scenario` give the same run again. I never: hold anything of the world beside
//! [`gabion_sim::live::Live`].

use std::cell::OnceCell;

use gabion_node::Bounds;
use gabion_sim::config::{Fault, Load, Target};
use gabion_sim::live::{Burst, Live};
use gabion_sim::network::NetworkFault;
use serde::{Deserialize, Serialize};

use crate::error::{from_json, to_json, BridgeError};
use crate::limits::BURST_OVER_NS;
use crate::rules::{RuleInfo, Understood};
use crate::run::{self, Ends, Focus, Group, Run};
use crate::snapshot;

/// What can be done now.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// Requests at one member, at once.
    Burst {
        /// Which member.
        member: usize,
        /// How many, of one hit each.
        hits: u32,
        /// Under which rule.
        #[serde(default)]
        rule: u16,
        /// For which key.
        #[serde(default)]
        key: u32,
        /// Spread over this time, nanoseconds.
        #[serde(default = "burst_over_ns")]
        over_ns: u64,
    },
    /// Requests at a rate, until they are stopped.
    Load {
        /// How many in a second, in all.
        per_second: u64,
        /// At which member; any when left out.
        #[serde(default)]
        at: Option<usize>,
        /// Under which rule.
        #[serde(default)]
        rule: u16,
        /// For so many keys, by Zipf.
        #[serde(default = "one_key")]
        keys: u32,
        /// Evenly, not at random.
        #[serde(default)]
        steady: bool,
    },
    /// One stream ends.
    StopLoad {
        /// Its number.
        load: usize,
    },
    /// All streams end.
    StopLoads {},
    /// A process ends.
    Kill {
        /// Whose.
        member: usize,
    },
    /// It starts again.
    Start {
        /// Which.
        member: usize,
    },
    /// All links, from now on; what is left out stays.
    Links {
        /// Frames lost, parts per million.
        loss_ppm: Option<u32>,
        /// Shortest delay, nanoseconds.
        delay_min_ns: Option<u64>,
        /// Longest delay, nanoseconds.
        delay_max_ns: Option<u64>,
        /// Frames that arrive twice, parts per million.
        duplicate_ppm: Option<u32>,
    },
    /// Anything a scenario knows.
    Fault(Fault),
}

fn burst_over_ns() -> u64 {
    BURST_OVER_NS
}

fn one_key() -> u32 {
    1
}

/// What came of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Done {
    /// When, nanoseconds.
    pub at_ns: u64,
    /// The stream's number.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub load: Option<usize>,
}

#[derive(Serialize)]
struct Info<'s> {
    #[serde(skip_serializing_if = "Option::is_none")]
    id: &'s Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    title: &'s Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tells: &'s Option<String>,
    seed: u64,
    members: usize,
    start_ns: u64,
    end_ns: u64,
    speed: f64,
    focus: Focus,
    groups: &'s [Group],
    #[serde(skip_serializing_if = "Option::is_none")]
    ends: &'s Option<Ends>,
    rules: Vec<&'s RuleInfo>,
    rules_text: &'s str,
    recorded: Vec<Recorded>,
    loads: Vec<Running>,
}

#[derive(Serialize)]
struct Recorded {
    at_ns: u64,
    what: What,
}

#[derive(Serialize)]
#[serde(untagged)]
enum What {
    Fault(Fault),
    Load { load: Load },
}

#[derive(Serialize)]
struct Running {
    load: usize,
    what: Load,
}

#[derive(Serialize)]
struct LinkInfo {
    to: usize,
    up: bool,
    hears_us: bool,
    rtt_ns: u64,
    silent_ns: u64,
    staleness_ns: u64,
    in_flight: usize,
    backlog: u64,
}

/// A world on a page.
pub struct Session {
    live: Live,
    run: Run,
    rules: Vec<Understood>,
    focus: Focus,
    /// What members state now, once somebody looked.
    bounds: OnceCell<Vec<Bounds>>,
}

impl Session {
    /// A run, from its JSON, at time 0.
    ///
    /// # Errors
    /// [`BridgeError`]: what is wrong, and where.
    pub fn new(json: &str) -> Result<Session, BridgeError> {
        let run::Read { run, rules, config } = run::read(json)?;
        let focus = run.focus;
        let live = Live::new(config)?;
        Ok(Session {
            live,
            run,
            rules,
            focus,
            bounds: OnceCell::new(),
        })
    }

    /// The world, to drive it.
    pub fn live(&mut self) -> &mut Live {
        self.bounds.take();
        &mut self.live
    }

    fn bounds(&self) -> &[Bounds] {
        self.bounds
            .get_or_init(|| snapshot::bounds(self.live.world()))
    }

    /// What the run is, as JSON.
    pub fn info(&self) -> String {
        let config = self.live.config();
        let faults = config.faults.iter().map(|&(at_ns, fault)| Recorded {
            at_ns,
            what: What::Fault(fault),
        });
        let loads = config.loads.iter().map(|&load| Recorded {
            at_ns: load.from_ns,
            what: What::Load { load },
        });
        let mut recorded: Vec<Recorded> = faults.chain(loads).collect();
        recorded.sort_by_key(|held| held.at_ns);
        let running = self.live.running().into_iter();
        to_json(&Info {
            id: &self.run.id,
            title: &self.run.title,
            tells: &self.run.tells,
            seed: config.seed,
            members: config.members,
            start_ns: self.run.start_ns,
            end_ns: self.run.end_ns,
            speed: self.run.speed,
            focus: self.focus,
            groups: &self.run.groups,
            ends: &self.run.ends,
            rules: self.rules.iter().map(|held| &held.info).collect(),
            rules_text: &self.run.rules,
            recorded,
            loads: running.map(|(load, what)| Running { load, what }).collect(),
        })
    }

    /// Does what the JSON of a [`Command`] says. Returns JSON of [`Done`].
    ///
    /// # Errors
    /// [`BridgeError`]: why not.
    pub fn command(&mut self, json: &str) -> Result<String, BridgeError> {
        let command: Command = from_json("command", json)?;
        let done = self.run(command)?;
        Ok(to_json(&done))
    }

    /// Does something now.
    ///
    /// # Errors
    /// [`BridgeError`]: why not.
    pub fn run(&mut self, command: Command) -> Result<Done, BridgeError> {
        self.bounds.take();
        let mut load = None;
        let at_ns = match command {
            Command::Burst {
                member,
                hits,
                rule,
                key,
                over_ns,
            } => self.live.burst(Burst {
                member,
                hits,
                rule,
                key,
                over_ns,
            })?,
            Command::Load {
                per_second,
                at,
                rule,
                keys,
                steady,
            } => {
                let target = at.map_or(Target::Any, Target::One);
                let started = self.live.stream(rule, per_second, keys, target, steady)?;
                load = Some(started.0);
                started.1
            }
            Command::StopLoad { load } => self.live.stop(load)?,
            Command::StopLoads {} => {
                for (running, _) in self.live.running() {
                    self.live.stop(running)?;
                }
                self.live.now_ns()
            }
            Command::Kill { member } => self.live.kill(member)?,
            Command::Start { member } => self.live.start(member)?,
            Command::Links {
                loss_ppm,
                delay_min_ns,
                delay_max_ns,
                duplicate_ppm,
            } => {
                let held = self.live.world().network.fault;
                self.live.fault(Fault::Network(NetworkFault {
                    loss_ppm: loss_ppm.unwrap_or(held.loss_ppm),
                    delay_min_ns: delay_min_ns.unwrap_or(held.delay_min_ns),
                    delay_max_ns: delay_max_ns.unwrap_or(held.delay_max_ns),
                    duplicate_ppm: duplicate_ppm.unwrap_or(held.duplicate_ppm),
                    ..held
                }))?
            }
            Command::Fault(fault) => self.live.fault(fault)?,
        };
        Ok(Done { at_ns, load })
    }

    /// Which counter is shown from now on; one that is not there shows nothing.
    pub fn focus(&mut self, rule: u16, key: u32) {
        self.focus = Focus { rule, key };
    }

    /// Frames since the last call.
    pub fn frames(&mut self) -> Vec<f64> {
        let records = self.live.world_mut().recorder();
        snapshot::frames(&records.map(|r| r.take_frames()).unwrap_or_default())
    }

    /// Merges since the last call.
    pub fn merges(&mut self) -> Vec<f64> {
        let records = self.live.world_mut().recorder();
        snapshot::merges(&records.map(|r| r.take_merges()).unwrap_or_default())
    }

    /// Verdicts since the last call.
    pub fn verdicts(&mut self) -> Vec<f64> {
        let records = self.live.world_mut().recorder();
        snapshot::verdicts(&records.map(|r| r.take_verdicts()).unwrap_or_default())
    }

    /// Every member and the counter in focus.
    pub fn members(&self) -> Vec<f64> {
        snapshot::members(self.live.world(), self.bounds(), self.focus)
    }

    /// The cluster and the counter in focus.
    pub fn cluster(&self) -> Vec<f64> {
        snapshot::cluster(self.live.world(), self.bounds(), self.focus)
    }

    /// The cluster and the same key of another rule.
    pub fn cluster_of(&self, rule: u16) -> Vec<f64> {
        let key = self.focus.key;
        snapshot::cluster(self.live.world(), self.bounds(), Focus { rule, key })
    }

    /// Pairs of members, sender first, of links that carry nothing.
    pub fn cuts(&self) -> Vec<f64> {
        let cuts = self.live.world().network.cuts();
        cuts.flat_map(|(from, to)| [from as f64, to as f64])
            .collect()
    }

    /// What a member's node knows of each peer, as JSON; nothing for one that is not there.
    pub fn links_of(&self, member: usize) -> String {
        let world = self.live.world();
        if member >= world.members() {
            return "[]".to_owned();
        }
        let all = 0..world.members();
        let index = |addr| all.clone().find(|&other| world.member(other).addr == addr);
        let peers = world.member(member).node.peers();
        let links = peers.filter_map(|peer| {
            Some(LinkInfo {
                to: index(peer.addr)?,
                up: peer.up,
                hears_us: peer.hears_us,
                rtt_ns: peer.rtt_ns,
                silent_ns: peer.silent_ns,
                staleness_ns: peer.staleness_ns,
                in_flight: peer.in_flight,
                backlog: peer.backlog,
            })
        });
        to_json(&links.collect::<Vec<_>>())
    }

    /// This run with all that was done, as JSON.
    pub fn run_json(&self) -> String {
        let now_ns = self.live.now_ns();
        to_json(&self.run.with(self.live.config(), now_ns, self.focus))
    }

    /// This run up to now as a scenario file.
    pub fn scenario(&self) -> String {
        gabion_sim::scenario::text(&self.live.scenario())
    }

    /// What the checkers objected to, as a JSON list of texts.
    pub fn violations(&self) -> String {
        let records = self.live.world().records();
        let all = records
            .map(|records| records.objections())
            .unwrap_or_default();
        to_json(&all.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    /// Digest of every datagram and verdict so far, hexadecimal.
    pub fn trace(&self) -> String {
        format!("{:016x}", self.live.world().report().trace)
    }

    /// What holds now, as a preset documents it.
    // Counts: whole numbers, not negative, far below 2^53.
    #[allow(clippy::cast_possible_truncation)]
    pub fn ends(&self) -> Ends {
        let row = self.cluster();
        let whole = |column: usize| row.get(column).map_or(0, |number| *number as u64);
        Ends {
            truth: whole(1),
            over: whole(3),
            disagreement: whole(5),
            admitted: whole(7),
            denied: whole(8),
            frames: whole(10),
            bytes: whole(11),
            trace: self.trace(),
        }
    }

    /// The run as it was read.
    pub fn about(&self) -> &Run {
        &self.run
    }
}
