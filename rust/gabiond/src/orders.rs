//! Orders of operators in this process: eras and flags, as decisions read them.
//!
//! I own one word per rule and flag of each policy, and what is known of every era and flag. I
//! promise that a decision reads one word per matched rule and per flag, and never waits for
//! whoever writes it, and that the next policy begins where this one stands. I never send anything.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use gabion_driver::{DriverHandle, OrderError};
use gabion_node::Reach;
use gabion_rule::policy::yaml::nearest;
use gabion_rule::{
    applied, concerns, flag_name, limiter_name, Flag, FlagIdx, Order, Orders, Rule, RuleTable,
    Share,
};
use thiserror::Error;

use crate::policy::Policy;

/// The orders for one policy: the era of each rule, and what each flag that rules name was set to,
/// one word each, in the order of its table.
#[derive(Debug)]
pub struct Board {
    eras: Words,
    flags: Words,
}

/// Words with the names of the orders that they take.
#[derive(Debug)]
struct Words {
    names: Box<[(u64, Option<u64>)]>,
    words: Box<[AtomicU64]>,
}

impl Words {
    fn new(names: impl Iterator<Item = (u64, Option<u64>)>) -> Self {
        let names: Box<[_]> = names.collect();
        Self {
            words: names.iter().map(|_| AtomicU64::new(0)).collect(),
            names,
        }
    }

    /// Relaxed: a word stands alone, it publishes no other memory.
    #[inline]
    fn of(&self, at: usize) -> Orders {
        let word = self.words.get(at);
        word.map_or_else(Orders::default, |word| {
            Orders::from_word(word.load(Ordering::Relaxed))
        })
    }

    /// Only ever called under the lock of [`Known`], so nothing comes between load and store.
    fn take(&self, order: Order) {
        for (names, word) in self.names.iter().zip(&self.words) {
            if concerns(*names, order) {
                let before = Orders::from_word(word.load(Ordering::Relaxed));
                word.store(applied(before, order).word(), Ordering::Relaxed); // see `of`
            }
        }
    }
}

/// Every order this process knows, and the boards of the policies that are alive.
#[derive(Debug, Default)]
pub struct Known {
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    eras: BTreeMap<u64, u32>,
    flags: BTreeMap<u64, Option<Share>>,
    /// Two while a policy replaces another, else one.
    boards: Vec<Weak<Board>>,
}

impl Board {
    fn new(rules: &RuleTable) -> Self {
        let limiter = |rule: &Rule| (limiter_name(&rule.domain, &rule.limiter), None);
        // No limiter is called 0.
        let flag = |flag: &Flag| (0, Some(flag_name(&flag.name)));
        Self {
            eras: Words::new(rules.rules().iter().map(limiter)),
            flags: Words::new(rules.flags().iter().map(flag)),
        }
    }

    /// The reset era of a rule's counters.
    #[inline]
    pub fn era(&self, rule: usize) -> u32 {
        self.eras.of(rule).era()
    }

    /// What a flag was set to; `None`: its declared default holds.
    #[inline]
    pub fn flag(&self, flag: FlagIdx) -> Option<Share> {
        self.flags.of(usize::from(flag)).share()
    }

    fn take(&self, order: Order) {
        self.eras.take(order);
        self.flags.take(order);
    }
}

impl Known {
    /// A board for these rules, with all that is known, which from now on hears of every order.
    pub fn board(&self, rules: &RuleTable) -> Arc<Board> {
        let board = Arc::new(Board::new(rules));
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        for (limiter, era) in &all.eras {
            let (limiter, era) = (*limiter, *era);
            board.take(Order::Era { limiter, era });
        }
        for (flag, share) in &all.flags {
            let (flag, share) = (*flag, *share);
            board.take(Order::Flag { flag, share });
        }
        all.boards.retain(|board| board.strong_count() > 0);
        all.boards.push(Arc::downgrade(&board));
        board
    }

    /// Takes an order; decisions know of it when this returns.
    pub fn take(&self, order: Order) {
        let mut all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        match order {
            Order::Era { limiter, era } => {
                let known = all.eras.entry(limiter).or_default();
                *known = era.max(*known);
            }
            Order::Flag { flag, share } => {
                all.flags.insert(flag, share);
            }
        }
        let boards = all.boards.iter().filter_map(Weak::upgrade);
        boards.for_each(|board| board.take(order));
    }

    /// The era of a limiter; 0 before its first reset.
    pub fn era(&self, limiter: u64) -> u32 {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.eras.get(&limiter).copied().unwrap_or(0)
    }

    /// What a flag was set to; `None`: its declared default holds.
    pub fn flag(&self, flag: u64) -> Option<Share> {
        let all = self.all.lock().unwrap_or_else(PoisonError::into_inner);
        all.flags.get(&flag).copied().flatten()
    }
}

/// Why an order was not carried out. Nothing changed, unless it says so.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum OrderFailure {
    /// No rule uses the limiter.
    #[error("no rule{in_domain} has the limiter {limiter}, and nothing was reset{hint}")]
    NoLimiter {
        /// What was asked for.
        limiter: String,
        /// ` of domain d`, when one was asked for.
        in_domain: String,
        /// What was probably meant.
        hint: String,
    },
    /// The flag is not declared.
    #[error("flag {flag} is not declared, and nothing was set{hint}; declare it under flags")]
    NoFlag {
        /// What was asked for.
        flag: String,
        /// What was probably meant.
        hint: String,
    },
    /// Gossip did not take it.
    #[error("{0}")]
    Gossip(#[from] OrderError),
}

/// What a reset did in one domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reset {
    /// The domain.
    pub domain: String,
    /// The era in force from now on.
    pub era: u32,
    /// Whether other members follow.
    pub reach: Reach,
}

/// A declared flag as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FlagState {
    /// Its name.
    pub name: String,
    /// What its declaration says.
    pub default: Share,
    /// The attribute that a share is a share of the values of.
    pub by: Option<String>,
    /// What it was set to.
    pub set: Option<Share>,
}

impl FlagState {
    /// What holds.
    pub fn share(&self) -> Share {
        self.set.unwrap_or(self.default)
    }
}

/// Starts the counters of a limiter afresh, in one domain or in all that have it.
///
/// # Errors
/// [`OrderFailure`]. When one of several domains fails, those before it were reset.
pub async fn reset_limiter(
    known: &Known,
    driver: Option<&DriverHandle>,
    policy: &Policy,
    limiter: &str,
    domain: Option<&str>,
) -> Result<Vec<Reset>, OrderFailure> {
    let rules = policy.rules().rules();
    let wanted = |rule: &&Rule| domain.is_none_or(|domain| rule.domain == domain);
    let mut domains: Vec<&str> = rules
        .iter()
        .filter(wanted)
        .filter(|rule| rule.limiter == limiter)
        .map(|rule| rule.domain.as_str())
        .collect();
    domains.sort_unstable();
    domains.dedup();
    if domains.is_empty() {
        let names = rules
            .iter()
            .filter(wanted)
            .map(|rule| rule.limiter.as_str());
        return Err(OrderFailure::NoLimiter {
            limiter: limiter.to_owned(),
            in_domain: domain.map_or(String::new(), |domain| format!(" of domain {domain}")),
            hint: hint(nearest(limiter, names)),
        });
    }
    let mut done = Vec::with_capacity(domains.len());
    for domain in domains {
        let name = limiter_name(domain, limiter);
        let (era, reach) = match driver {
            Some(driver) => (driver.raise_era(name).await?, Reach::Cluster),
            None => {
                let era = known.era(name).saturating_add(1);
                known.take(Order::Era { limiter: name, era });
                (era, Reach::Local)
            }
        };
        tracing::info!(domain, limiter, era, "the counters of a limiter were reset");
        let domain = domain.to_owned();
        done.push(Reset { domain, era, reach });
    }
    Ok(done)
}

/// Sets a declared flag; `None`: back to its default.
///
/// # Errors
/// [`OrderFailure`]; nothing changed.
pub async fn set_flag(
    known: &Known,
    driver: Option<&DriverHandle>,
    policy: &Policy,
    flag: &str,
    share: Option<Share>,
) -> Result<Reach, OrderFailure> {
    if !policy.flags().iter().any(|declared| declared.name == flag) {
        let names = policy.flags().iter().map(|declared| declared.name.as_str());
        return Err(OrderFailure::NoFlag {
            flag: flag.to_owned(),
            hint: hint(nearest(flag, names)),
        });
    }
    let name = flag_name(flag);
    let reach = match driver {
        Some(driver) => driver.set_flag(name, share).await?,
        None => {
            known.take(Order::Flag { flag: name, share });
            Reach::Local
        }
    };
    let share = share.map_or_else(|| "default".to_owned(), |share| share.to_string());
    tracing::info!(flag, share, ?reach, "a flag was set");
    Ok(reach)
}

/// The declared flags as they are now.
pub fn flags(known: &Known, policy: &Policy) -> Vec<FlagState> {
    let state = |declared: &gabion_rule::policy::FlagSpec| FlagState {
        name: declared.name.clone(),
        default: declared.default,
        by: declared.by.clone(),
        set: known.flag(flag_name(&declared.name)),
    };
    policy.flags().iter().map(state).collect()
}

fn hint(near: Option<&str>) -> String {
    near.map_or(String::new(), |near| format!("; did you mean {near}?"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use gabion_rule::policy::parse_limits;

    const RULES: &str = "{flags: {f: }, limits: [\
        {name: a, domain: d, limiter: l, rate: 1r/s, descriptors: [{key: k}], if_flag: f}, \
        {name: b, domain: d, limiter: l, rate: 1r/s, descriptors: [{key: other}]}, \
        {name: c, domain: e, limiter: l, rate: 1r/s, descriptors: [{key: k}], if_flag: f}]}";

    #[test]
    fn every_board_alive_hears_of_an_order_and_a_new_one_begins_with_all_of_them() {
        let rules = parse_limits("test", RULES).expect("good").rules;
        let rules = RuleTable::build(rules).expect("rules");
        let known = Known::default();
        let first = known.board(&rules);
        let limiter = limiter_name("d", "l");
        known.take(Order::Era { limiter, era: 4 });
        let second = known.board(&rules);
        let flag = flag_name("f");
        let share = Some(Share::OFF);
        known.take(Order::Flag { flag, share });
        known.take(Order::Era { limiter, era: 3 });
        for board in [&first, &second] {
            assert_eq!([0, 1, 2, 9].map(|at| board.era(at)), [4, 4, 0, 0]);
            assert_eq!([0, 1].map(|at| board.flag(at)), [share, None]);
        }
        drop(first);
        let third = known.board(&rules);
        assert_eq!((third.era(0), third.flag(0)), (4, share));
        assert_eq!(known.all.lock().expect("whole").boards.len(), 2);
    }
}
