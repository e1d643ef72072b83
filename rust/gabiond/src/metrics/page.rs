//! Writing families of metrics, and names that fit into labels.

use std::fmt;

use prometheus_client::encoding::{DescriptorEncoder, EncodeGaugeValue, NoLabelSet};
use prometheus_client::metrics::MetricType;

use crate::limits::LABEL_BYTES;
use crate::observe::{fnv1a, FNV_START};

/// A page of metrics that is being written. Names of counters come without `_total`.
pub(super) struct Page<'p, 'e> {
    encoder: &'p mut DescriptorEncoder<'e>,
}

/// One series of a family: its labels and its value.
type Series<'l, const N: usize, V> = ([(&'static str, &'l str); N], V);

impl<'p, 'e> Page<'p, 'e> {
    pub(super) fn new(encoder: &'p mut DescriptorEncoder<'e>) -> Self {
        Self { encoder }
    }

    pub(super) fn counters<'l, const N: usize>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = Series<'l, N, u64>>,
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Counter)?;
        all.into_iter().try_for_each(|(labels, count)| {
            family
                .encode_family(&labels)?
                .encode_counter::<NoLabelSet, _, f64>(&count, None)
        })
    }

    pub(super) fn counter(&mut self, name: &str, help: &str, count: u64) -> fmt::Result {
        self.counters(name, help, [([], count)])
    }

    /// The one counter that is no whole number.
    pub(super) fn cpu_seconds(&mut self, seconds: f64) -> fmt::Result {
        self.encoder
            .encode_descriptor(
                "process_cpu_seconds",
                "User and system time of the process",
                None,
                MetricType::Counter,
            )?
            .encode_counter::<NoLabelSet, _, f64>(&seconds, None)
    }

    pub(super) fn gauges<'l, const N: usize, V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = Series<'l, N, V>>,
    ) -> fmt::Result {
        let mut family = self
            .encoder
            .encode_descriptor(name, help, None, MetricType::Gauge)?;
        all.into_iter()
            .try_for_each(|(labels, value)| family.encode_family(&labels)?.encode_gauge(&value))
    }

    pub(super) fn gauge<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        value: V,
    ) -> fmt::Result {
        self.gauges(name, help, [([], value)])
    }

    /// `buckets`: upper bounds with what is in each alone, the last one unbounded.
    pub(super) fn histogram(
        &mut self,
        name: &str,
        help: &str,
        sum: f64,
        buckets: &[(f64, u64)],
    ) -> fmt::Result {
        let count = buckets.iter().map(|(_, count)| count).sum();
        self.encoder
            .encode_descriptor(name, help, None, MetricType::Histogram)?
            .encode_histogram::<NoLabelSet>(sum, count, buckets, None)
    }
}

/// Nanoseconds in the base unit.
pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// A name as a label's value: as it is, or its beginning and a hash of all of it.
pub(super) fn label(name: &str) -> String {
    if name.len() <= LABEL_BYTES {
        return name.to_owned();
    }
    cut(name, fnv1a(FNV_START, name.as_bytes()))
}

/// Values of descriptors as a label's value, the same way; `hash` is of all of them.
pub(super) fn values_label(text: &str, hash: u64) -> String {
    if text.len() <= LABEL_BYTES {
        return text.to_owned();
    }
    cut(text, hash)
}

fn cut(name: &str, hash: u64) -> String {
    let mut end = LABEL_BYTES - 17;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}~{hash:016x}", &name[..end])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_name_is_cut_and_still_told_apart() {
        assert_eq!(label("short"), "short");
        let (a, b) = ("ü".repeat(100) + "a", "ü".repeat(100) + "b");
        assert!(label(&a).len() <= LABEL_BYTES && label(&a).starts_with("üüü"));
        assert_ne!(label(&a), label(&b));
        assert_eq!(
            fnv1a(FNV_START, b"foobar"),
            0x8594_4171_f739_67e8,
            "FNV-1a's published example"
        );
    }
}
