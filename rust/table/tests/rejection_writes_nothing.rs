//! A rejection is a pure read of its row: every word of every row is the same after it.
//! spec: adm-26

mod common;

use common::{bucket, charge, fixed, key, strict, sub, SECOND_NS, START_NS};
use gabion_admit::Outcome;
use gabion_table::{Mem, RawMem, Table};

/// Every word of memory that is part of a row.
fn row_words(table: &Table<RawMem>) -> Vec<(usize, u64)> {
    (0..table.mem().len())
        .filter(|&i| table.describe(i).contains(".row"))
        .map(|i| (i, table.mem().load(i)))
        .collect()
}

#[test]
fn a_rejection_leaves_every_word_of_every_row_as_it_was() {
    let rules = [
        sub(1, fixed(5)),
        sub(2, strict(5, 3)),
        sub(3, bucket(1, 60 * SECOND_NS, 5)),
    ];
    let table = Table::private(64 << 10, &rules).expect("64 KiB hold three rules");
    let decide = |rule, now_ns| {
        let mut charges = [charge(rule, key(1), 1)];
        table.decide(&mut charges, now_ns).outcome
    };
    for rule in 0..3 {
        let admitted = (0..6).filter(|_| decide(rule, START_NS) == Outcome::Allowed);
        assert_eq!(admitted.count(), 5, "rule {rule}");
    }
    let before = row_words(&table);
    assert!(before.iter().any(|&(_, word)| word != 0), "rows are seen");
    for rule in 0..3 {
        for n in 0..100 {
            // Later in the same bucket; and for the sliding window in the next one, too, where the
            // head is not rolled for a request that is refused.
            let late = if rule == 1 { SECOND_NS } else { 0 };
            assert_eq!(
                decide(rule, START_NS + late + n),
                Outcome::Denied,
                "rule {rule}"
            );
        }
    }
    for (&(i, old), (_, new)) in before.iter().zip(row_words(&table)) {
        assert_eq!(old, new, "{}", table.describe(i));
    }
}
