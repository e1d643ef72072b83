//! Every checker bites: a planted fault is found, and by the checker that should.

use gabion_sim::config::Plant;
use gabion_sim::run::run_seed;

/// Seeds a planted fault gets to show itself; printed with what was found.
const SEEDS: u64 = 12;

#[test]
fn each_planted_fault_is_found_by_its_checker() {
    for (plant, name, checkers) in Plant::ALL {
        let found = (0..SEEDS).find_map(|seed| Some((seed, run_seed(seed, plant).err()?)));
        let Some((seed, violation)) = found else {
            panic!("{name}: not found in seeds 0..{SEEDS}");
        };
        println!("{name}: seed {seed}: {violation}");
        assert!(
            checkers.contains(&violation.checker),
            "{name}: seed {seed}: {violation}"
        );
    }
}

#[test]
fn a_few_seeds_hold_without_one() {
    for seed in 0..6 {
        if let Err(violation) = run_seed(seed, Plant::None) {
            panic!("seed {seed}: {violation}\n  replay: ./tools/sim --replay {seed}");
        }
    }
}
