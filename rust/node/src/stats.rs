//! Counters: everything that happened, and every cause of a drop, under a stable name.

use gabion_wire::WireError;

macro_rules! node_stats {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters since start, unless said otherwise. Field names are the stable names.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct NodeStats {
            $($(#[$doc])* pub $name: u64,)*
            /// Frames dropped by the codec's or the receiver's checks, by [`WireError::index`].
            pub wire_drops: [u64; WireError::COUNT],
        }

        impl NodeStats {
            /// Every counter with its name, drops by the codec as their [`WireError::name`].
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> + '_ {
                let own = [$((stringify!($name), self.$name),)*];
                let wire = WireError::ALL.iter().map(|e| (e.name(), self.wire_drops[e.index()]));
                own.into_iter().chain(wire)
            }
        }
    };
}

node_stats! {
    /// Datagrams received.
    frames_in,
    /// Their bytes.
    bytes_in,
    /// Datagrams sent.
    frames_out,
    /// Their bytes.
    bytes_out,
    /// Frames sent only to acknowledge.
    ack_frames_out,
    /// Liveness frames sent.
    heartbeats_out,
    /// Hellos sent.
    hellos_out,
    /// Hellos received.
    hellos_in,
    /// Rows received.
    rows_in,
    /// Received rows that raised a count.
    rows_raised,
    /// Rows sent, repeats included.
    rows_out,
    /// Rows sent again because their frame was lost.
    rows_resent,
    /// Rows sent on behalf of another origin over a broken link.
    rows_relayed,
    /// Rounds of forwarding.
    spread_rounds,
    /// Packets encoded for rounds and for answers to whole requests.
    packets_built,
    /// Packets given up because their receiver did not answer or its queue was full.
    packets_given_up,
    /// Rows of other origins put into packets.
    rows_forwarded,
    /// News dropped because too much waited for a round; left to digests.
    news_overflow,
    /// Rows sent in answer to a digest request.
    rows_repaired,
    /// Rows published to the dirty log.
    rows_published,
    /// Emission rounds.
    rounds,
    /// Frames found lost by a gap in acks.
    frames_lost,
    /// Retransmission time-outs.
    rto_expired,
    /// Links that fell behind the dirty log and are repaired by digest.
    log_overruns,
    /// Digests received.
    digests_in,
    /// Digests sent.
    digests_out,
    /// Received digests that matched.
    digests_matched,
    /// Received digests that did not match.
    digests_mismatched,
    /// Mismatches left alone because repair is backed off or rows of it were refused.
    repairs_backed_off,
    /// Repairs asked for.
    repairs_started,
    /// Repairs given up because an answer did not come.
    repairs_timed_out,
    /// Digest requests received.
    requests_in,
    /// Digest requests sent.
    requests_out,
    /// Digest requests dropped because the link serves its bound of them.
    requests_refused,
    /// "Not kept" answers received.
    not_kept_in,
    /// "Not kept" answers sent.
    not_kept_out,
    /// Eras and flags sent, repeats included.
    registers_out,
    /// Received eras and flags that were newer than what was known.
    registers_newer,
    /// Eras and flags refused because as many names as fit are kept.
    refused_registers,
    /// Received flags dropped because gossip is not authenticated here.
    drop_unsigned_flags,
    /// Eras and flags kept now.
    registers,
    /// Sections of later releases skipped.
    sections_unknown,
    /// Frames of a session that is not proven.
    drop_unproven,
    /// Rows of a limiter this member does not have.
    drop_unknown_limiter,
    /// Rows of an epoch that is over.
    drop_old_epoch,
    /// Rows of an epoch too far ahead.
    drop_future_epoch,
    /// Own counts for a limiter or epoch that is not accepted.
    drop_own,
    /// Cells dropped because a backward clock step put them in the future.
    void_cells,
    /// Counts refused because the cell store is full.
    refused_full,
    /// Counts refused because their origin used its share.
    refused_origin_share,
    /// Counts refused because too many origins are alive.
    refused_origins,
    /// Counts refused because too many epochs are alive.
    refused_shelves,
    /// Frames of unknown sources refused because provisional links are used up or off.
    refused_provisional,
    /// Frames of no proven session dropped unread: their source, or all that are in no peer set,
    /// sent too many.
    refused_strangers,
    /// Addresses of the peer set beyond the bound.
    refused_peers,
    /// Answers to unproven sources withheld by rate.
    refused_replies,
    /// Rows below the threshold sent early because their queue was full.
    cold_overflow,
    /// Effects dropped because nobody polled them.
    effects_dropped,
    /// Times the cluster clock was stepped.
    clock_steps,
    /// Times it was slewed.
    clock_slews,
    /// Cells held now, own and remote.
    cells,
    /// Most cells held at once.
    cells_max,
    /// Bytes the cell store holds now.
    cell_bytes,
    /// (limiter, epoch) pairs held now.
    shelves,
    /// Origins known now.
    origins,
    /// Peers up now.
    peers_up,
    /// Own rows go by forwarding now (1) or directly to every member (0).
    forwarding,
    /// Bytes that forwarding holds now: news, packets, queues.
    spread_bytes,
    /// Live staleness bound: age of the oldest published row some peer that is up lacks,
    /// nanoseconds.
    staleness_ns,
}

impl NodeStats {
    /// Counts a frame the codec or a check refused.
    pub(crate) fn drop_frame(&mut self, cause: WireError) {
        self.wire_drops[cause.index()] += 1;
    }

    /// Frames dropped for one cause.
    pub fn dropped(&self, cause: WireError) -> u64 {
        self.wire_drops[cause.index()]
    }
}
