//! Streams of requests: when the next one comes, where, and for which key.

use crate::config::{Arrival, Keys, Load, Target};
use crate::rng::Zipf;
use crate::world::{Event, World};

impl World {
    pub(crate) fn on_load(&mut self, index: usize) {
        let load = self.config.loads[index];
        if self.now_ns >= load.until_ns {
            return;
        }
        let member = match load.target {
            Target::Any => self.rng.index(self.members.len()),
            Target::One(member) => member,
            Target::Rotating { stay_ns } => {
                usize::try_from(self.now_ns / stay_ns.max(1)).unwrap_or(0) % self.members.len()
            }
        };
        let key = self.draw_key(load.keys);
        self.request(member, load.rule, key, load.hits);
        let next_ns = self.next_arrival(&load);
        self.push(next_ns, Event::Load(index));
    }

    fn draw_key(&mut self, keys: Keys) -> u32 {
        match keys {
            Keys::One(key) => key,
            Keys::Uniform(n) => u32::try_from(self.rng.below(u64::from(n))).unwrap_or(0),
            Keys::Zipf(n) => {
                let zipf = self.zipfs.entry(n).or_insert_with(|| Zipf::new(n));
                zipf.draw(&mut self.rng)
            }
            Keys::Fresh => {
                self.fresh_key += 1;
                self.fresh_key
            }
        }
    }

    fn next_arrival(&mut self, load: &Load) -> u64 {
        let now = self.now_ns;
        match load.arrival {
            Arrival::Steady { every_ns } => now + every_ns.max(1),
            Arrival::Poisson { mean_ns } => now + self.rng.exponential(mean_ns).max(1),
            Arrival::OnOff {
                every_ns,
                on_ns,
                off_ns,
            } => {
                let next = now + every_ns.max(1);
                let cycle = (on_ns + off_ns).max(1);
                let into = (next - load.from_ns) % cycle;
                if into < on_ns {
                    next
                } else {
                    next + (cycle - into)
                }
            }
        }
    }
}
