//! What an operator changes while members run: reset eras and flags, as a decider reads them.
//!
//! I own the names of limiters and flags between members, the share of keys a flag is on for, and
//! the one word per rule that holds both. I promise that a share is stable: the same key is always
//! on the same side, and a larger share keeps whoever was in. I never know where an order came
//! from.

use std::fmt;
use std::hash::Hasher;
use std::str::FromStr;

use siphasher::sip::SipHasher24;

use crate::identity::flag_identity;
use crate::key::{Key, KeyHasher};

/// Fixed keys, as for identities: names are compared between members and are no secret.
const LIMITER_KEY: &[u8; 16] = b"gabion limiter 1";
const FLAG_KEY: &[u8; 16] = b"gabion flag    1";

/// The name of a limiter's reset era between members: every rule of this domain and limiter,
/// whatever its window or descriptors, has this one era.
// spec: ord-1
pub fn limiter_name(domain: &str, limiter: &str) -> u64 {
    let mut out = SipHasher24::new_with_key(LIMITER_KEY);
    for text in [domain, limiter] {
        out.write(&(text.len() as u64).to_le_bytes());
        out.write(text.as_bytes());
    }
    out.finish()
}

/// The name of a flag between members.
// spec: ord-2
pub fn flag_name(flag: &str) -> u64 {
    let mut out = SipHasher24::new_with_key(FLAG_KEY);
    out.write(flag.as_bytes());
    out.finish()
}

/// The share of keys that a flag is on for, in whole per cent.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Share(u8);

impl Share {
    /// For no key.
    pub const OFF: Share = Share(0);
    /// For every key.
    pub const ON: Share = Share(100);

    /// A share of `percent`; `None` beyond 100.
    pub const fn percent(percent: u8) -> Option<Share> {
        if percent <= 100 {
            Some(Share(percent))
        } else {
            None
        }
    }

    /// Per cent, 0 to 100.
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Whether it is on for some keys and off for others.
    pub const fn is_partial(self) -> bool {
        self.0 > 0 && self.0 < 100
    }

    /// Whether the flag is on for a key. `key` is the key in era 0, so that a reset moves nobody.
    // spec: ord-9
    pub fn admits(self, key: Key) -> bool {
        // Mixed, since the table places rows by the plain bits.
        let mixed = (key.a ^ key.b.rotate_left(16)).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (mixed * 100) >> 32 < u64::from(self.0)
    }
}

impl fmt::Display for Share {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0 => f.write_str("off"),
            100 => f.write_str("on"),
            percent => write!(f, "{percent}%"),
        }
    }
}

/// A flag as a rule names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flag {
    /// Its name.
    pub name: String,
    /// What holds until it is set.
    pub default: Share,
    /// The attribute whose values a share is a share of, so that all rules that name the flag
    /// change together for one of them; `None`: each rule's keys.
    pub by: Option<Vec<u8>>,
}

/// The flag that switches something, and how: written `if_flag` and `unless_flag`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Switch {
    /// The flag.
    pub flag: Flag,
    /// Whether the flag must be on, else off.
    pub on: bool,
}

impl Switch {
    /// The word of a configuration.
    pub fn word(&self) -> &'static str {
        if self.on {
            "if_flag"
        } else {
            "unless_flag"
        }
    }
}

/// What stands for a value of the attribute that a flag goes by, for [`Share::admits`]: the same in
/// every rule and on every member of a cluster.
// spec: ord-9
pub(crate) fn flag_key(hasher: &KeyHasher, flag: &str, value: &[u8]) -> Key {
    hasher.key(&flag_identity(flag), &[(b"", value)], 0)
}

/// Why a text is no share. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is none of: on, off, a whole number of per cent like 25%")]
pub struct ShareError(String);

impl FromStr for Share {
    type Err = ShareError;

    fn from_str(text: &str) -> Result<Share, ShareError> {
        let refused = || ShareError(crate::duration::shorten(text));
        match text {
            "on" => return Ok(Share::ON),
            "off" => return Ok(Share::OFF),
            _ => {}
        }
        let digits = text.strip_suffix('%').ok_or_else(refused)?;
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refused());
        }
        let percent = digits.parse().map_err(|_| refused())?;
        Share::percent(percent).ok_or_else(refused)
    }
}

/// The orders in force for one rule, packed so that a decider reads them with one load.
///
/// Bits 0 to 31: the era. Bits 32 to 39: the share its flag was set to, plus one; 0 = not set, the
/// declared default holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Orders(u64);

impl Orders {
    /// From the word of a cell.
    pub const fn from_word(word: u64) -> Orders {
        Orders(word)
    }

    /// The word of a cell.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// The reset era; 0 until the first reset.
    pub const fn era(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// What the rule's flag was set to; `None`: the declared default holds.
    pub const fn share(self) -> Option<Share> {
        match (self.0 >> 32 & 0xff) as u8 {
            0 => None,
            more => Share::percent(more - 1),
        }
    }

    /// The same with an era at least as high as `era`.
    #[must_use]
    pub fn with_era(self, era: u32) -> Orders {
        Orders(self.0 & !0xffff_ffff | u64::from(era.max(self.era())))
    }

    /// The same with the flag set, or unset.
    #[must_use]
    pub fn with_share(self, share: Option<Share>) -> Orders {
        let bits = share.map_or(0, |share| u64::from(share.0) + 1);
        Orders(self.0 & !(0xff << 32) | bits << 32)
    }
}

/// One change of an order, as a member learns of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// A limiter's era rose.
    Era {
        /// [`limiter_name`].
        limiter: u64,
        /// The era.
        era: u32,
    },
    /// A flag was set.
    Flag {
        /// [`flag_name`].
        flag: u64,
        /// What to; `None`: back to the declared default.
        share: Option<Share>,
    },
}

/// Whether an order is for a rule of these names ([`Rule::order_names`]).
pub fn concerns(names: (u64, Option<u64>), order: Order) -> bool {
    match order {
        Order::Era { limiter, .. } => limiter == names.0,
        Order::Flag { flag, .. } => Some(flag) == names.1,
    }
}

/// The orders after one more.
pub fn applied(orders: Orders, order: Order) -> Orders {
    match order {
        Order::Era { era, .. } => orders.with_era(era),
        Order::Flag { share, .. } => orders.with_share(share),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_run_together_and_stay_as_they_are() {
        assert_ne!(limiter_name("ab", "c"), limiter_name("a", "bc"));
        assert_ne!(limiter_name("", "x"), flag_name("x"));
        // Members of other releases compute these: a change splits the cluster.
        assert_eq!(limiter_name("nginx", "api"), 5_317_789_893_328_133_962);
        assert_eq!(flag_name("canary"), 10_735_724_861_572_468_216);
    }

    #[test]
    fn shares_are_read_and_printed() {
        for (text, percent) in [("off", 0), ("0%", 0), ("on", 100), ("100%", 100), ("7%", 7)] {
            assert_eq!(text.parse::<Share>().unwrap().get(), percent, "{text}");
        }
        for text in [
            "", "%", "101%", "50", "-1%", "+5%", "1.5%", "true", "999999%",
        ] {
            assert!(text.parse::<Share>().is_err(), "{text}");
        }
        for percent in 0..=100 {
            let share = Share::percent(percent).unwrap();
            assert_eq!(share.to_string().parse(), Ok(share));
        }
        assert_eq!(Share::percent(101), None);
    }

    #[test]
    fn a_share_is_near_its_size_and_a_larger_one_keeps_whoever_was_in() {
        let keys = |n: u64| {
            let mix = n.wrapping_mul(0xd134_2543_de82_ef95);
            Key::new(mix >> 7, mix.rotate_left(29).wrapping_mul(n | 1))
        };
        let mut before = vec![false; 20_000];
        for percent in 0..=100 {
            let share = Share::percent(percent).unwrap();
            let now: Vec<bool> = (0..20_000).map(|n| share.admits(keys(n))).collect();
            assert!(before.iter().zip(&now).all(|(was, is)| *is || !*was));
            let on = now.iter().filter(|on| **on).count();
            assert!(
                on.abs_diff(usize::from(percent) * 200) < 600,
                "{percent}: {on}"
            );
            before = now;
        }
        assert!(before.iter().all(|on| *on));
    }

    #[test]
    fn one_word_holds_both_and_neither_disturbs_the_other() {
        let none = Orders::default();
        assert_eq!((none.era(), none.share()), (0, None));
        let mut orders = none.with_era(u32::MAX).with_share(Some(Share::OFF));
        assert_eq!((orders.era(), orders.share()), (u32::MAX, Some(Share::OFF)));
        orders = orders.with_share(Some(Share::ON)).with_era(5);
        assert_eq!((orders.era(), orders.share()), (u32::MAX, Some(Share::ON)));
        orders = Orders::from_word(orders.with_share(None).word());
        assert_eq!((orders.era(), orders.share()), (u32::MAX, None));
    }
}
