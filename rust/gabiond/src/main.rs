//! The `gabiond` binary; `gabion_server::cli` says what it does.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    gabion_server::cli::main()
}
