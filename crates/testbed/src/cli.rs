//! `plimsoll testbed`: the command line of the testbed systems.

use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use plimsoll_core::Nanos;
use serde_json::{Value, json};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use crate::graph::cluster::Cluster;
use crate::server::Server;
use crate::shop::{self, Shop};
use crate::{cycle, graph, pages};

/// Run a small real system to overload
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    system: System,
}

#[derive(Debug, clap::Subcommand)]
enum System {
    /// A web service with cheap, middling and heavy routes in front of a pool of workers.
    Pages {
        #[command(flatten)]
        options: pages::Options,
        /// Prints one JSON line on stdout when ready.
        #[arg(long)]
        json: bool,
    },
    /// A web service whose requests share a lock, a pool and a cache, with an account that the agent reads, and requests that hog each.
    Hogs {
        /// Address to listen on; port 0 takes any free one.
        #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9200")]
        listen: SocketAddr,
        /// Prints one JSON line on stdout when ready.
        #[arg(long)]
        json: bool,
    },
    /// An in-memory graph store: a broker in front of shards, with eleven query types of rising cost.
    Graph(GraphArgs),
    /// A fleet of services on loopback, as a scenario of `plimsoll fleet` has it, with spans and metrics.
    Shop {
        #[command(flatten)]
        options: shop::Options,
        /// Prints one JSON line on stdout when ready.
        #[arg(long)]
        json: bool,
    },
    /// A program that computes for so long, then sleeps for so long, over and over: something to compete with for CPUs.
    Cycle(cycle::Options),
}

#[derive(Debug, clap::Args)]
struct GraphArgs {
    /// What this process is.
    #[arg(long, value_enum, default_value = "all")]
    role: Role,
    /// Address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9100")]
    listen: SocketAddr,
    /// Which of the shards this one is, from zero.
    #[arg(long, default_value_t = 0)]
    index: u32,
    /// Where a broker finds its shards, once for each in the order of their index.
    #[arg(long, value_name = "ADDR")]
    shard_addr: Vec<SocketAddr>,
    #[command(flatten)]
    options: graph::Options,
    /// Prints one JSON line on stdout when ready.
    #[arg(long)]
    json: bool,
    /// Says nothing to people, and ends when stdin does.
    #[arg(long, hide = true)]
    child: bool,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Role {
    /// Shards and broker, each a process of its own.
    All,
    /// One shard.
    Shard,
    /// The broker.
    Broker,
}

/// Runs until SIGINT or SIGTERM. Fails where the system cannot start, or ended by itself.
pub fn run(args: Args) -> ExitCode {
    let result = match args.system {
        System::Pages { options, json } => run_pages(options, json),
        System::Hogs { listen, json } => run_hogs(listen, json),
        System::Graph(args) => run_graph(args),
        System::Shop { options, json } => run_shop(&options, json),
        System::Cycle(options) => cycle::run(options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("plimsoll testbed: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run_pages(options: pages::Options, json: bool) -> io::Result<()> {
    let cpus = if options.cpu.is_some() { 1 } else { std::thread::available_parallelism()?.get() };
    let capacity_per_s = options.capacity_per_s(&pages::MIX, cpus);
    let (workers, work) = (options.workers, options.work.as_str());
    let costs = pages::Route::ALL.map(|route| (route.as_str(), options.cost(route)));
    until_told(false, || {
        let server = pages::start(options)?;
        let addr = server.addr();
        if json {
            let service_ms = costs.map(|(name, cost)| (name.to_owned(), Nanos::as_millis_f64(cost).into()));
            let ready = json!({
                "ready": "pages", "addr": addr.to_string(), "workers": workers, "work": work,
                "service_ms": serde_json::Map::from_iter(service_ms), "capacity_per_s": capacity_per_s,
            });
            println!("{ready}");
        }
        let costs = costs.map(|(name, cost)| format!("/{name} {cost}")).join(", ");
        eprintln!(
            "pages on http://{addr}: {workers} workers ({work}), {costs}; \
             about {capacity_per_s:.0}/s of the 50/30/20 mix"
        );
        Ok(server)
    })
}

fn run_hogs(listen: SocketAddr, json: bool) -> io::Result<()> {
    plimsoll_sdk_testbed::run(listen, plimsoll_sdk_testbed::Settings::default(), |addr| {
        if json {
            let ready =
                json!({ "ready": "hogs", "addr": addr.to_string(), "app": plimsoll_sdk_testbed::APP });
            println!("{ready}");
        }
        eprintln!(
            "hogs on http://{addr}: /item is what it is for; /hog/lock, /hog/pool and /hog/cache stop it, for ?seconds=1"
        );
    })
}

fn run_shop(options: &shop::Options, json: bool) -> io::Result<()> {
    until_told(false, || {
        let shop = shop::start(options)?;
        let (entry, admin, services) = (shop.entry(), shop.admin(), shop.services());
        let apis: Vec<&str> = shop.apis().collect();
        if json {
            let (entry, admin) = (entry.to_string(), admin.to_string());
            println!(
                "{}",
                json!({ "ready": "shop", "addr": entry, "admin": admin, "services": services, "apis": apis })
            );
        }
        eprintln!(
            "shop on http://{entry}: /{}; {services} services, http://{admin}/metrics",
            apis.join(", /")
        );
        Ok(shop)
    })
}

fn run_graph(args: GraphArgs) -> io::Result<()> {
    let GraphArgs { role, listen, index, shard_addr, options, json, child } = args;
    let announce = |ready: Value, words: String| {
        if json {
            println!("{ready}");
        }
        if !child {
            eprintln!("{words}");
        }
    };
    let wrong = |what: &str| Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    match role {
        Role::All => until_told(false, || {
            let cluster = Cluster::start(&std::env::current_exe()?, &options, listen)?;
            let (broker, shards) = (cluster.broker(), cluster.shards().map(|addr| addr.to_string()));
            let shards: Vec<String> = shards.collect();
            let words =
                format!("graph store on http://{broker}/q/QT1 to QT11, shards on {}", shards.join(", "));
            announce(json!({ "ready": "graph", "addr": broker.to_string(), "shards": shards }), words);
            Ok(cluster)
        }),
        Role::Shard if index >= options.shard.shards => wrong("--index must be below --shards"),
        Role::Shard => until_told(child, || {
            let server = graph::shard::start(&options, index as usize, listen)?;
            let addr = server.addr();
            let ready = json!({ "ready": "shard", "addr": addr.to_string(), "index": index });
            announce(ready, format!("shard {index} on http://{addr}"));
            Ok(server)
        }),
        Role::Broker if shard_addr.is_empty() => wrong("a broker needs a --shard-addr for each shard"),
        Role::Broker => until_told(child, || {
            let server = graph::broker::start(&options, &shard_addr, listen)?;
            let addr = server.addr();
            let ready = json!({ "ready": "broker", "addr": addr.to_string(), "shards": shard_addr.len() });
            announce(ready, format!("broker on http://{addr}, {} shards", shard_addr.len()));
            Ok(server)
        }),
    }
}

/// Something that runs until it is stopped.
trait Running {
    /// Resolves when it has ended by itself, with how.
    async fn ended(&mut self) -> io::Error;
    /// Lets it finish what it has begun.
    fn stop(self);
}

impl Running for Server {
    async fn ended(&mut self) -> io::Error {
        Server::ended(self).await;
        io::Error::other("the server has ended")
    }
    fn stop(self) {
        Server::stop(self);
    }
}

impl Running for Cluster {
    async fn ended(&mut self) -> io::Error {
        loop {
            if let Err(error) = self.check() {
                return error;
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    }
    fn stop(self) {}
}

impl Running for Shop {
    async fn ended(&mut self) -> io::Error {
        Shop::ended(self).await;
        io::Error::other("the entry has ended")
    }
    fn stop(self) {}
}

/// Runs until a signal, or the end of stdin where `with_stdin`. Signals are caught from before the start,
/// so that none falls between.
fn until_told<R: Running>(with_stdin: bool, start: impl FnOnce() -> io::Result<R>) -> io::Result<()> {
    tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        let mut running = start()?;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            () = stdin_closed(), if with_stdin => {}
            error = running.ended() => return Err(error),
        }
        running.stop();
        Ok(())
    })
}

/// On a thread of its own: a runtime would wait for its blocking read for ever.
async fn stdin_closed() {
    let (closed, is_closed) = oneshot::channel::<()>();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin().lock(), &mut io::sink());
        drop(closed);
    });
    let _ = is_closed.await;
}
