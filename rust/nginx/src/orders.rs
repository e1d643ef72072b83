//! Orders of operators in an instance: eras and flags, kept in the zones.
//!
//! I own the way of an order into every zone. I promise that eras live as long as the counters they
//! belong to, and that a rule's two flags do not disturb each other. I never send anything.

use std::sync::Arc;

use gabion_driver::{Registers, StandingOrders};
use gabion_rule::{applied, concerns, flag_name, Order, Orders, Rule, Switch};
use gabion_table::Mem;
use gabion_wire::EraEntry;

use crate::zone::{Zone, FLAGS_OF_RULE};

/// What one rule's orders are called: its limiter's era, its flag, and the flag of its charge.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// Of the limiter.
    pub limiter: u64,
    /// Of both flags.
    pub flags: [Option<u64>; FLAGS_OF_RULE],
}

impl Names {
    /// Of a rule.
    pub fn of(rule: &Rule) -> Names {
        let name = |switch: Option<&Switch>| switch.map(|switch| flag_name(&switch.flag.name));
        Names {
            limiter: rule.order_names().0,
            flags: switches(rule).map(name),
        }
    }
}

/// A rule's own switch, and that of its charge.
pub fn switches(rule: &Rule) -> [Option<&Switch>; FLAGS_OF_RULE] {
    let charge = rule
        .charge
        .as_ref()
        .and_then(|charge| charge.switch.as_ref());
    [rule.switch.as_ref(), charge]
}

/// A zone with the names of its rules' orders, in the order of its table.
pub type NamedZone<M> = (Arc<Zone<M>>, Vec<Names>);

/// What a driver starts with and whom it tells: every zone of the instance.
// spec: ord-3, ord-4
pub fn standing<M: Mem + Send + Sync + 'static>(zones: Vec<NamedZone<M>>) -> StandingOrders {
    let eras = zones.iter().flat_map(|(zone, names)| {
        let era = |(rule, names): (usize, &Names)| EraEntry {
            limiter: names.limiter,
            era: zone.era(rule),
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
        for (slot, flag) in names.flags.into_iter().enumerate() {
            // The era stands in the first.
            let is_era = matches!(order, Order::Era { .. });
            if concerns((names.limiter, flag), order) && (slot == 0 || !is_era) {
                zone.change_orders(rule, slot, flag, &|before| applied(before, order));
            }
        }
    }
}

/// Copies the eras, and the flags as they are, from the zones of the configuration before.
pub fn carry<M: Mem>(old: &[(&Zone<M>, &[Names])], new: (&Zone<M>, &[Names])) {
    for (rule, names) in new.1.iter().enumerate() {
        let mut orders = [Orders::default(); FLAGS_OF_RULE];
        for (zone, held) in old {
            for (was, held) in held.iter().enumerate() {
                if held.limiter == names.limiter {
                    orders[0] = orders[0].with_era(zone.era(was));
                }
                for (slot, flag) in held.flags.into_iter().enumerate() {
                    let share = zone.orders(was, slot, flag).share();
                    for (orders, name) in orders.iter_mut().zip(names.flags) {
                        if flag.is_some() && flag == name {
                            *orders = orders.with_share(share);
                        }
                    }
                }
            }
        }
        for (slot, orders) in orders.into_iter().enumerate() {
            new.0
                .change_orders(rule, slot, names.flags[slot], &|_| orders);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zone::tests::small;
    use gabion_rule::Share;

    const fn named(limiter: u64, flags: [Option<u64>; 2]) -> Names {
        Names { limiter, flags }
    }

    const A: Names = named(10, [Some(1), None]);
    const B: Names = named(10, [None, Some(2)]);
    const C: Names = named(20, [Some(2), None]);

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
        let seen = |at: usize, rule: usize, slot, flag| {
            let zone = &zones[at].0;
            (zone.era(rule), zone.orders(rule, slot, flag).share())
        };
        assert_eq!(seen(0, 0, 0, Some(1)), (7, None));
        assert_eq!(seen(0, 1, 0, None), (7, None));
        assert_eq!(seen(0, 1, 1, Some(2)), (7, Some(Share::OFF)));
        assert_eq!(seen(1, 0, 0, Some(2)), (0, Some(Share::OFF)));
        let kept = standing(zones.to_vec()).kept;
        assert_eq!((kept.era(10), kept.era(20), kept.flags().len()), (7, 0, 0));
        // A reload that gives the rule another flag does not take the old one's setting for it.
        assert_eq!(seen(1, 0, 0, Some(3)), (0, None));
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
        let (new, names) = (small(3), [C, named(30, [Some(2), None]), B]);
        let (other, alone) = (small(1), [named(40, [None, None])]);
        carry(&[(&old.0, &old.1), (&other, &alone)], (&new, &names));
        let seen = [0, 1, 2].map(|rule| {
            let share = |slot| new.orders(rule, slot, names[rule].flags[slot]).share();
            (new.era(rule), [0, 1].map(|slot| share(slot).is_some()))
        });
        let expected = [(0, [true, false]), (0, [true, false]), (7, [false, true])];
        assert_eq!(seen, expected, "a flag is found wherever a rule named it");
    }
}
