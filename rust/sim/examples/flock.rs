//! Prints what the mesh and forwarding cost: `flock MEMBERS mesh|N idle|hot|steady|burst MS`.
use gabion_node::Fanout;
use gabion_sim::flock::{measure, Work};

fn main() {
    let args: Vec<String> = std::env::args().collect();
    let number = |i: usize| args.get(i).and_then(|a| a.parse::<usize>().ok());
    let members = number(1).unwrap_or(16);
    let fanout = number(2).map_or(Fanout::Mesh, |n| {
        Fanout::Members(u16::try_from(n).unwrap_or(u16::MAX))
    });
    let work = match args.get(3).map(String::as_str) {
        Some("hot") => Work::HotEverywhere,
        Some("steady") => Work::SteadyAtOne,
        Some("burst") => Work::BurstAtOne(2_000),
        _ => Work::Idle,
    };
    let ms = number(4).unwrap_or(1_000) as u64;
    println!(
        "{members} {fanout:?} {work:?}: {:?}",
        measure(1, members, fanout, work, ms * 1_000_000)
    );
}
