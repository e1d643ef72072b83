//! A world that somebody drives by hand: time in small steps, and things done to it meanwhile.
//!
//! I own the programme: what was done is put on the world's own list of loads and faults, with its
//! time. I promise: a world that is run anew from that list, here or by `--replay`, is the same to
//! the last byte of its trace; what cannot be done is refused with the reason and changes nothing.
//! I never: read a clock. How fast time passes is the caller's matter.

use std::collections::BTreeSet;
use std::path::Path;

use gabion_rule::RuleIdx;

use crate::config::{Arrival, Fault, Keys, Load, Target, WorldConfig, MS, SECOND};
use crate::scenario::{self, ScenarioError, MAX_TIME_NS};
use crate::world::{Event, World};

/// Hits of one burst, at most.
pub const BURST_MOST: u32 = 100_000;
/// Requests per second of one load, at most.
pub const RATE_MOST: u64 = 100_000;
/// Things that can be done in one run.
pub const DONE_MOST: usize = 100_000;
/// A round of gossip takes at most this long.
pub const ROUND_MOST_NS: u64 = SECOND;
/// Grain in which a round of gossip is looked for.
const ROUND_STEP_NS: u64 = MS / 2;
/// "Until it is stopped."
const OPEN_NS: u64 = MAX_TIME_NS;

/// Why something was not done. Nothing has changed.
#[derive(Debug, thiserror::Error)]
pub enum LiveError {
    /// A number is out of its range; give one within.
    #[error("{what} is {value}; it may be {least} to {most}")]
    Range {
        /// Which.
        what: &'static str,
        /// What was given.
        value: u64,
        /// Least.
        least: u64,
        /// Most.
        most: u64,
    },
    /// It is not in a state for that.
    #[error("{0}")]
    State(String),
    /// The world as it would be cannot be run.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
}

/// A burst of requests at one member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Burst {
    /// At which member.
    pub member: usize,
    /// How many requests, of one hit each.
    pub hits: u32,
    /// Under which rule.
    pub rule: RuleIdx,
    /// For which key.
    pub key: u32,
    /// Evenly spread over this time.
    pub over_ns: u64,
}

/// A world and its programme.
pub struct Live {
    world: World,
    /// Times at which something is on the programme: no two things at one time, so that their
    /// order in the list does not matter.
    taken: BTreeSet<u64>,
}

fn within(what: &'static str, value: u64, least: u64, most: u64) -> Result<(), LiveError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(LiveError::Range {
        what,
        value,
        least,
        most,
    })
}

fn started(config: WorldConfig) -> World {
    let mut world = World::new(config);
    world.record();
    world
}

impl Live {
    /// A recorded world at true time 0.
    ///
    /// # Errors
    /// [`ScenarioError`] when it cannot be run.
    pub fn new(config: WorldConfig) -> Result<Live, ScenarioError> {
        scenario::validate(Path::new("run"), &config)?;
        let loads = config.loads.iter().map(|load| load.from_ns);
        let faults = config.faults.iter().map(|fault| fault.0);
        let orders = config.orders.iter().map(|order| order.0);
        let taken = loads.chain(faults).chain(orders).collect();
        let world = started(config);
        Ok(Live { world, taken })
    }

    /// The world, to look at.
    pub fn world(&self) -> &World {
        &self.world
    }

    /// The world, to take its records.
    pub fn world_mut(&mut self) -> &mut World {
        &mut self.world
    }

    /// What it is made of, with everything that was done, or will be.
    pub fn config(&self) -> &WorldConfig {
        self.world.config()
    }

    /// True time now.
    pub fn now_ns(&self) -> u64 {
        self.world.now_ns()
    }

    /// Lets `by_ns` pass, but at most `most_events` events (0: any number). Returns the time then.
    pub fn step(&mut self, by_ns: u64, most_events: u64) -> u64 {
        let until_ns = self.now_ns().saturating_add(by_ns);
        self.run(until_ns, most_events)
    }

    fn run(&mut self, until_ns: u64, most_events: u64) -> u64 {
        let most = if most_events == 0 {
            u64::MAX
        } else {
            most_events
        };
        self.world.run_some(until_ns.min(MAX_TIME_NS), most);
        self.now_ns()
    }

    /// One round of gossip: until a frame with counts is sent and all that are then under way have
    /// arrived; at most [`ROUND_MOST_NS`]. Returns the time then.
    pub fn step_round(&mut self) -> u64 {
        let end_ns = self.now_ns().saturating_add(ROUND_MOST_NS);
        let telling = |live: &Live| live.world.records().map_or(0, |records| records.telling);
        let before = telling(self);
        while self.now_ns() < end_ns && telling(self) == before {
            self.step(ROUND_STEP_NS, 0);
        }
        let arrived_ns = self.world.records().map_or(0, |held| held.arrived_by_ns);
        self.run(arrived_ns.clamp(self.now_ns(), end_ns), 0)
    }

    /// To `to_ns`, back or forth, in slices of `most_events` as [`Live::step`]: the past is run
    /// anew from the start. Returns the time then; to be called until it is `to_ns`.
    pub fn seek(&mut self, to_ns: u64, most_events: u64) -> u64 {
        if to_ns < self.now_ns() {
            self.world = started(self.world.config().clone());
        }
        self.run(to_ns, most_events)
    }

    /// What is on the programme after now is struck out.
    pub fn forget_later(&mut self) {
        let now_ns = self.now_ns();
        let mut config = self.world.config().clone();
        config.loads.retain(|load| load.from_ns <= now_ns);
        config.faults.retain(|fault| fault.0 <= now_ns);
        config.orders.retain(|order| order.0 <= now_ns);
        self.taken.retain(|at_ns| *at_ns <= now_ns);
        self.world = started(config);
        self.world.run_until(now_ns);
    }

    /// The next free time after now.
    fn free_ns(&mut self) -> Result<u64, LiveError> {
        let done = self.taken.len();
        within(
            "the number of things done",
            done as u64,
            0,
            DONE_MOST as u64 - 1,
        )?;
        let mut at_ns = self.now_ns() + 1;
        while self.taken.contains(&at_ns) {
            at_ns += 1;
        }
        within("the time", at_ns, 0, MAX_TIME_NS)?;
        Ok(at_ns)
    }

    fn member(&self, member: usize) -> Result<(), LiveError> {
        let last = self.world.members() as u64 - 1;
        within("the member", member as u64, 0, last)
    }

    fn rule(&self, rule: RuleIdx) -> Result<(), LiveError> {
        let last = self.config().rules.len() as u64 - 1;
        within("the rule", u64::from(rule), 0, last)
    }

    /// Does `fault`, now: the time moves on to when it is done, a nanosecond or few. Returns when.
    ///
    /// # Errors
    /// When it names what is not there, or lasts too long.
    pub fn fault(&mut self, fault: Fault) -> Result<u64, LiveError> {
        for member in fault.members() {
            self.member(member)?;
        }
        within("how long it lasts", fault.lasts_ns(), 0, MAX_TIME_NS)?;
        let at_ns = self.free_ns()?;
        self.taken.insert(at_ns);
        self.world.programme_fault(at_ns, fault);
        self.world.run_until(at_ns);
        Ok(at_ns)
    }

    /// Requests come, from now on. Returns the number of the stream, and when it starts.
    ///
    /// # Errors
    /// When it names what is not there.
    pub fn load(&mut self, load: Load) -> Result<(usize, u64), LiveError> {
        self.rule(load.rule)?;
        if let Target::One(member) = load.target {
            self.member(member)?;
        }
        let at_ns = self.free_ns()?;
        let lasts_ns = load.until_ns.saturating_sub(load.from_ns);
        let load = Load {
            from_ns: at_ns,
            until_ns: at_ns.saturating_add(lasts_ns).min(OPEN_NS),
            ..load
        };
        self.taken.insert(at_ns);
        let number = self.world.programme_load(load);
        self.world.run_until(at_ns);
        Ok((number, at_ns))
    }

    /// A burst at one member.
    ///
    /// # Errors
    /// When it names what is not there, or is too large.
    pub fn burst(&mut self, burst: Burst) -> Result<u64, LiveError> {
        self.member(burst.member)?;
        within("hits", u64::from(burst.hits), 1, u64::from(BURST_MOST))?;
        within("over_ns", burst.over_ns, 0, 3_600 * SECOND)?;
        let hits = u64::from(burst.hits);
        let every_ns = (burst.over_ns / hits).max(1);
        let (_, at_ns) = self.load(Load {
            rule: burst.rule,
            keys: Keys::One(burst.key),
            target: Target::One(burst.member),
            arrival: Arrival::Steady { every_ns },
            hits: 1,
            from_ns: 0,
            until_ns: every_ns * hits,
        })?;
        Ok(at_ns)
    }

    /// Requests at a rate, until they are stopped: `keys` of them by Zipf, or one.
    ///
    /// # Errors
    /// When it names what is not there, or is too much.
    pub fn stream(
        &mut self,
        rule: RuleIdx,
        per_second: u64,
        keys: u32,
        target: Target,
        steady: bool,
    ) -> Result<(usize, u64), LiveError> {
        within("per_second", per_second, 1, RATE_MOST)?;
        within("keys", u64::from(keys), 1, 1_000_000)?;
        let every_ns = SECOND / per_second;
        self.load(Load {
            rule,
            keys: if keys == 1 {
                Keys::One(0)
            } else {
                Keys::Zipf(keys)
            },
            target,
            arrival: if steady {
                Arrival::Steady { every_ns }
            } else {
                Arrival::Poisson { mean_ns: every_ns }
            },
            hits: 1,
            from_ns: 0,
            until_ns: OPEN_NS,
        })
    }

    /// Streams that still run.
    pub fn running(&self) -> Vec<(usize, Load)> {
        let now_ns = self.now_ns();
        let runs = |load: &Load| load.until_ns > now_ns + 1;
        let loads = self.config().loads.iter().copied().enumerate();
        loads.filter(|(_, load)| runs(load)).collect()
    }

    /// No request of this stream after now.
    ///
    /// # Errors
    /// When there is none of that number.
    pub fn stop(&mut self, load: usize) -> Result<u64, LiveError> {
        let loads = self.config().loads.len() as u64;
        let last = loads.checked_sub(1);
        let last = last.ok_or_else(|| LiveError::State("there is no load to stop".to_owned()))?;
        within("the load", load as u64, 0, last)?;
        let at_ns = self.now_ns() + 1;
        self.world.stop_load(load, at_ns);
        Ok(at_ns)
    }

    /// The process of a member ends, and stays away.
    ///
    /// # Errors
    /// When it is away already.
    pub fn kill(&mut self, member: usize) -> Result<u64, LiveError> {
        self.member(member)?;
        if !self.world.member(member).here(self.now_ns()) {
            let why = format!("member {member} is down or away already; start it first");
            return Err(LiveError::State(why));
        }
        self.fault(Fault::Restart {
            member,
            down_ns: OPEN_NS,
            moves: false,
            wall_error_ns: 0,
        })
    }

    /// A member that was killed starts, with empty memory.
    ///
    /// # Errors
    /// When it runs, or has left for good.
    pub fn start(&mut self, member: usize) -> Result<u64, LiveError> {
        self.member(member)?;
        let held = self.world.member(member);
        if held.gone || held.here(self.now_ns()) {
            let why = match held.gone {
                true => format!("member {member} has left, or has not joined yet"),
                false => format!("member {member} runs already"),
            };
            return Err(LiveError::State(why));
        }
        self.fault(Fault::Restart {
            member,
            down_ns: 0,
            moves: false,
            wall_error_ns: 0,
        })
    }

    /// The run up to now, for `--replay`: what comes later is left out, streams end now, and who is
    /// down starts now.
    pub fn scenario(&self) -> WorldConfig {
        let now_ns = self.now_ns();
        let mut config = self.config().clone();
        config.loads.retain(|load| load.from_ns <= now_ns);
        for load in &mut config.loads {
            load.until_ns = load.until_ns.min(now_ns + 1);
        }
        config.faults.retain(|fault| fault.0 <= now_ns);
        config.orders.retain(|order| order.0 <= now_ns);
        for (at_ns, fault) in &mut config.faults {
            if let Fault::Restart { down_ns, .. } = fault {
                *down_ns = (*down_ns).min((now_ns + 1).saturating_sub(*at_ns));
            }
        }
        config
    }
}

impl World {
    /// What it is made of.
    pub fn config(&self) -> &WorldConfig {
        &self.config
    }

    fn programme_fault(&mut self, at_ns: u64, fault: Fault) {
        self.config.faults.push((at_ns, fault));
        self.programme(at_ns, Event::Fault(self.config.faults.len() - 1));
    }

    fn programme_load(&mut self, load: Load) -> usize {
        self.config.loads.push(load);
        let number = self.config.loads.len() - 1;
        self.programme(load.from_ns, Event::Load(number));
        number
    }

    fn stop_load(&mut self, load: usize, at_ns: u64) {
        let until_ns = &mut self.config.loads[load].until_ns;
        *until_ns = (*until_ns).min(at_ns);
    }
}
