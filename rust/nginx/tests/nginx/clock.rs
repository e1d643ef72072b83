//! The clock that an instance counts by, seen from a test in the same system.
//!
//! A test cannot know how fast the machine is, but it can know when it was: what did not happen in
//! the intended span of the instance's own time is tried again with fresh keys.

use std::time::Duration;

use gabion_driver::monotonic_ns;

use crate::server::Nginx;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

#[derive(Clone, Copy)]
pub(crate) struct Clock {
    offset_ns: i64,
}

impl Clock {
    /// The clock of its first zone; the rules' windows begin at whole multiples of their length.
    pub(crate) fn of(nginx: &Nginx) -> Clock {
        let offset_ns = &nginx.state()["zones"][0]["clock_offset_ns"];
        let offset_ns = offset_ns.as_i64().expect("a number");
        Clock { offset_ns }
    }

    pub(crate) fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_add_signed(self.offset_ns)
    }

    /// The number of the bucket of this length that is now.
    pub(crate) fn bucket(&self, length_ns: u64) -> u64 {
        self.now_ns() / length_ns
    }

    pub(crate) fn wait_until(&self, time_ns: u64) {
        while let Some(left) = time_ns.checked_sub(self.now_ns()).filter(|left| *left > 0) {
            std::thread::sleep(Duration::from_nanos(left));
        }
    }

    /// Waits for a bucket and runs `act` in it; `None` when it did not end within it.
    pub(crate) fn within<T>(
        &self,
        bucket: u64,
        length_ns: u64,
        act: impl FnOnce() -> T,
    ) -> Option<T> {
        self.wait_until(bucket * length_ns);
        let begins_in_it = self.bucket(length_ns) == bucket;
        let result = act();
        (begins_in_it && self.bucket(length_ns) == bucket).then_some(result)
    }
}

/// Tries `scenario`, which gets the number of the attempt for its keys, until the machine let it
/// run in the time it asks for.
pub(crate) fn in_time(what: &str, mut scenario: impl FnMut(u32) -> Option<()>) {
    let done = (0..20).any(|attempt| scenario(attempt).is_some());
    assert!(done, "the machine is too slow, 20 times: {what}");
}
