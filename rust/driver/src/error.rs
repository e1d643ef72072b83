//! What can go wrong before the loop runs. Once it runs, nothing ends it.

use std::io;

use thiserror::Error;

/// Why a driver could not be started. Nothing runs and nothing is bound then; decisions go on
/// locally without it.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DriverError {
    /// The operating system gave no thread.
    #[error("no thread for gossip: {0}. Nothing was started; raise the limit of threads")]
    Thread(io::Error),
    /// The operating system gave no event queue or timer.
    #[error("no event loop for gossip: {0}. Nothing was started; raise the limit of open files")]
    Runtime(io::Error),
}

/// Why a text is no cluster id. Nothing changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ClusterIdError {
    /// Nothing was written.
    #[error("the cluster id is empty; write a name such as `edge-eu`, or a number")]
    Empty,
    /// It looks like a number and is none of 64 bits.
    #[error(
        "`{text}` is not a number from 0 to 18446744073709551615 (0xffffffffffffffff); a name must \
         not start with 0x or consist of digits only"
    )]
    NotANumber {
        /// What was written.
        text: String,
    },
}
