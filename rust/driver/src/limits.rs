//! Every bound and tunable of the driver, with its unit in its name.

/// How soon the loop looks at the table again after it saw activity.
pub const POLL_MIN_NS: u64 = 1_000_000;
/// How rarely the loop looks at the table when nothing happens.
pub const POLL_MAX_NS: u64 = 10_000_000;
/// How much shorter than asked a sleep is set: timers here fire on whole milliseconds, rounded up,
/// so a sleep of 1 ms set just after one would last two.
pub const TIMER_EARLY_NS: u64 = 900_000;
/// The loop sleeps in its thread, beside timers, when the pump is due sooner than this: it is only
/// while a burst is told of.
pub const BURST_PAUSE_MAX_NS: u64 = 300_000;
/// Datagrams that one turn receives before it serves everything else.
pub const RECEIVES_PER_TURN: usize = 256;
/// Frames that one turn sends before it receives again.
pub const SENDS_PER_TURN: usize = 512;
/// Effects that one turn takes out of the node; the rest waits for the next turn.
pub const EFFECTS_PER_TURN: usize = 8_192;
/// Largest datagram that is received whole. Frames are at most 1,200 bytes (1,500 with room for
/// a later format), so anything longer is foreign and is cut here, then dropped by the decoder.
pub const RECEIVE_BUFFER_BYTES: usize = 2_048;
/// Socket buffer that is asked for in each direction; the kernel may grant less (`rmem_max`).
pub const SOCKET_BUFFER_BYTES: usize = 4 << 20;
/// First pause before a socket is bound again.
pub const REBIND_MIN_NS: u64 = 100_000_000;
/// Longest pause before a socket is bound again.
pub const REBIND_MAX_NS: u64 = 5_000_000_000;
/// How long the port must be taken before another one stands in for it: longer than a reload, in
/// which one worker hands the port to another.
pub const STAND_IN_AFTER_NS: u64 = 2_000_000_000;
/// Pause between looks whether the port that another one stands in for is free.
pub const STAND_IN_LOOK_NS: u64 = 500_000_000;
/// Send errors in a row, with no success between them, after which the socket is replaced.
pub const SEND_ERRORS_BEFORE_REBIND: u32 = 64;
/// How often the snapshot for people is renewed.
pub const SNAPSHOT_EVERY_NS: u64 = 200_000_000;
/// Fastest that the cluster clock is bent: 500 parts per million.
pub const SLEW_PPM: u64 = 500;
/// Longest time that the last frames get at shutdown.
pub const FAREWELL_NS: u64 = 50_000_000;
/// First pause before a loop that panicked is started again.
pub const RESTART_MIN_NS: u64 = 100_000_000;
/// Longest pause before a loop that panicked is started again.
pub const RESTART_MAX_NS: u64 = 5_000_000_000;
/// Orders of operators that may wait for the loop; whoever gives more waits.
pub const ORDERS_WAITING: usize = 64;
/// Orders that one turn carries out.
pub const ORDERS_PER_TURN: usize = 64;
