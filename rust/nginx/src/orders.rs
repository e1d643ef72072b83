//! Orders of operators in an instance: eras and flags, kept in the zones.
//!
//! I own what a decision makes of a rule's orders, and the way of an order into every zone. I
//! promise that a decision reads one word of the zone per rule (two if the rule names a flag), and
//! that eras live as long as the counters they belong to. I never send anything.

use std::sync::Arc;

use gabion_driver::{Registers, StandingOrders};
use gabion_rule::{applied, concerns, Order, Orders, Rule, Share};
use gabion_table::Mem;
use gabion_wire::EraEntry;

use crate::zone::Zone;

/// What one rule's orders are called: its limiter's era and its flag.
pub type Names = (u64, Option<u64>);

/// A zone with the names of its rules' orders, in the order of its table.
pub type NamedZone<M> = (Arc<Zone<M>>, Vec<Names>);

/// What a driver starts with and whom it tells: every zone of the instance.
// spec: ord-3, ord-4
pub fn standing<M: Mem + Send + Sync + 'static>(zones: Vec<NamedZone<M>>) -> StandingOrders {
    let eras = zones.iter().flat_map(|(zone, names)| {
        let era = |(rule, names): (usize, &Names)| EraEntry {
            limiter: names.0,
            era: zone.orders(rule, None).era(),
        };
        names.iter().enumerate().map(era).collect::<Vec<_>>()
    });
    // Flags are not kept with their versions: the zones show what was heard last until a peer says
    // what holds.
    let kept = Registers::new(eras, []);
    StandingOrders {
        kept,
        on_order: Some(Box::new(move |order| {
            zones.iter().for_each(|zone| take(zone, order));
        })),
    }
}

/// Takes an order into one zone.
fn take<M: Mem>((zone, names): &NamedZone<M>, order: Order) {
    for (rule, names) in names.iter().enumerate() {
        if concerns(*names, order) {
            zone.change_orders(rule, names.1, &|before| applied(before, order));
        }
    }
}

/// Copies the eras, and the flags as they are, from the zones of the configuration before.
pub fn carry<M: Mem>(old: &[(&Zone<M>, &[Names])], new: (&Zone<M>, &[Names])) {
    for (rule, names) in new.1.iter().enumerate() {
        let mut orders = Orders::default();
        for (zone, held) in old {
            for (was, held) in held.iter().enumerate() {
                let before = zone.orders(was, held.1);
                if held.0 == names.0 {
                    orders = orders.with_era(before.era());
                }
                if held.1.is_some() && held.1 == names.1 {
                    orders = orders.with_share(before.share());
                }
            }
        }
        new.0.change_orders(rule, names.1, &|_| orders);
    }
}

/// The era a rule counts in; `None` when its flag is off for the key. `key0` makes the key in era
/// 0, and is asked only for a flag that is on for some keys.
// spec: ord-7, ord-9
pub fn era_in_force(
    rule: &Rule,
    orders: Orders,
    key0: impl FnOnce() -> gabion_rule::Key,
) -> Option<u32> {
    if let Some(switch) = &rule.switch {
        let share = orders.share().unwrap_or(switch.flag.default);
        let on = match share.is_partial() {
            true => share.admits(key0()),
            false => share == Share::ON,
        };
        if on != switch.on {
            return None;
        }
    }
    Some(orders.era())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::tests::small;
    use gabion_rule::policy::parse_limits;
    use gabion_rule::{flag_name, limiter_name, Key};

    const A: Names = (10, Some(1));
    const B: Names = (10, None);
    const C: Names = (20, Some(2));

    fn off(flag: u64) -> Order {
        let share = Some(Share::OFF);
        Order::Flag { flag, share }
    }

    #[test]
    fn eras_and_flags_reach_the_rules_they_name_and_outlive_a_driver() {
        let zones = [
            (Arc::new(small(2)), vec![A, B]),
            (Arc::new(small(1)), vec![C]),
        ];
        let told = standing(zones.to_vec()).on_order.unwrap();
        told(Order::Era {
            limiter: 10,
            era: 7,
        });
        told(Order::Era {
            limiter: 10,
            era: 5,
        });
        told(off(2));
        let seen = |at: usize, rule: usize, flag| {
            let orders = zones[at].0.orders(rule, flag);
            (orders.era(), orders.share())
        };
        assert_eq!(seen(0, 0, A.1), (7, None));
        assert_eq!(seen(0, 1, B.1), (7, None));
        assert_eq!(seen(1, 0, C.1), (0, Some(Share::OFF)));
        let kept = standing(zones.to_vec()).kept;
        assert_eq!((kept.era(10), kept.era(20), kept.flags().len()), (7, 0, 0));
        // A reload that gives the rule another flag does not take the old one's setting for it.
        assert_eq!(seen(1, 0, Some(3)), (0, None));
    }

    #[test]
    fn a_zone_that_follows_another_begins_with_its_orders() {
        let old = (Arc::new(small(2)), vec![A, C]);
        take(
            &old,
            Order::Era {
                limiter: 10,
                era: 7,
            },
        );
        take(&old, off(2));
        let (new, names) = (small(3), [C, (30, Some(2)), B]);
        let other = small(1);
        carry(&[(&old.0, &old.1), (&other, &[(40, None)])], (&new, &names));
        let seen = [0, 1, 2].map(|rule| {
            let orders = new.orders(rule, names[rule].1);
            (orders.era(), orders.share().is_some())
        });
        assert_eq!(seen, [(0, true), (0, true), (7, false)]);
    }

    #[test]
    fn a_rule_is_asked_as_its_flag_says() {
        let yaml = "{flags: {f: {default: 40%}}, limits: [\
                    {name: a, domain: d, rate: 1r/s, descriptors: [{key: k}], if_flag: f}, \
                    {name: b, domain: d, rate: 1r/s, descriptors: [{key: j}]}]}";
        let rules = parse_limits("x", yaml).unwrap().rules;
        assert_eq!(
            rules[0].order_names(),
            (limiter_name("d", "a"), Some(flag_name("f")))
        );
        let orders = Orders::default().with_era(3);
        let key = |n: u64| Key::new(n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 3, n << 20);
        let asked = (0..1_000).filter(|n| era_in_force(&rules[0], orders, || key(*n)) == Some(3));
        assert!((300..500).contains(&asked.count()));
        let never = || -> Key { panic!("no key is needed") };
        let on = orders.with_share(Some(Share::ON));
        assert_eq!(era_in_force(&rules[0], on, never), Some(3));
        let off = orders.with_share(Some(Share::OFF));
        assert_eq!(era_in_force(&rules[0], off, never), None);
        assert_eq!(
            era_in_force(&rules[1], off, never),
            Some(3),
            "it names no flag"
        );
    }
}
