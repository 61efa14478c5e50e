//! `plimsoll testbed pages`: a small web service with cheap, middling and heavy routes.
//!
//! A fixed number of workers serve one FIFO queue. `/cheap`, `/middling` and `/heavy` pass through it,
//! `/healthz` does not. `POST /_fault?stall=1s` makes every worker stand still for that long, `POST
//! /_fault?die` ends the server as a crash would. As most servers do, it finishes a request whose client
//! has gone. Each page says what it cost, and how busy the service is ([`orca`](crate::orca)).

mod server;

use std::io;
use std::net::SocketAddr;

use plimsoll_core::Nanos;
use plimsoll_core::rng::{self, Rng};
use rand::RngExt;
use rand_distr::StandardNormal;

use crate::orca::Form;
use crate::server::Server;
use crate::work::WorkKind;

/// The share of each route in the mix that capacities are stated for.
pub const MIX: [(Route, f64); 3] = [(Route::Cheap, 0.5), (Route::Middling, 0.3), (Route::Heavy, 0.2)];

/// A page, by what it costs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/cheap`: 5 ms of waiting, or 1 ms of CPU.
    Cheap,
    /// `/middling`: 20 ms, or 4 ms of CPU.
    Middling,
    /// `/heavy`: 60 ms, or 12 ms of CPU.
    Heavy,
}

impl Route {
    /// Every route, cheapest first.
    pub const ALL: [Route; 3] = [Route::Cheap, Route::Middling, Route::Heavy];

    /// The first segment of its path.
    pub const fn as_str(self) -> &'static str {
        match self {
            Route::Cheap => "cheap",
            Route::Middling => "middling",
            Route::Heavy => "heavy",
        }
    }

    /// By the first segment of the path: `/heavy` and `/heavy/42` cost the same.
    pub fn of_path(path: &str) -> Option<Route> {
        let name = path.strip_prefix('/')?.split('/').next()?;
        Route::ALL.into_iter().find(|route| route.as_str() == name)
    }

    const fn default_cost(self, work: WorkKind) -> Nanos {
        let (wait_ms, cpu_ms) = match self {
            Route::Cheap => (5, 1),
            Route::Middling => (20, 4),
            Route::Heavy => (60, 12),
        };
        Nanos::from_millis(match work {
            WorkKind::Wait => wait_ms,
            WorkKind::Cpu => cpu_ms,
        })
    }
}

/// How to run the service.
#[derive(Clone, Debug, clap::Args)]
pub struct Options {
    /// Address to listen on; port 0 takes any free one.
    #[arg(long, value_name = "ADDR", default_value_t = Options::default().listen)]
    pub listen: SocketAddr,
    /// Requests worked on at once.
    #[arg(long, default_value_t = Options::default().workers)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: u32,
    /// Whether a request costs CPU time or waiting time.
    #[arg(long, value_enum, default_value_t = Options::default().work)]
    pub work: WorkKind,
    /// Requests that may wait for a worker before the service answers 503 [default: any number].
    #[arg(long)]
    pub queue: Option<usize>,
    /// Mean service time of a route, as in `cheap=5ms,heavy=80ms`.
    #[arg(long, value_name = "ROUTE=TIME", value_delimiter = ',', value_parser = parse_cost)]
    pub cost: Vec<(Route, Nanos)>,
    /// Spread of the lognormal service times around their mean; 0 makes them constant.
    #[arg(long, default_value_t = Options::default().sigma, value_parser = parse_sigma)]
    pub sigma: f64,
    /// How the service reports its load, and what each request cost it.
    #[arg(long, value_enum, default_value_t = Options::default().orca)]
    pub orca: Form,
    /// Seed of the service times.
    #[arg(long, default_value_t = Options::default().seed)]
    pub seed: u64,
    /// Runs on this CPU alone.
    #[arg(long, value_name = "CPU")]
    pub cpu: Option<usize>,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            listen: SocketAddr::from(([127, 0, 0, 1], 9001)),
            workers: 8,
            work: WorkKind::Cpu,
            queue: None,
            cost: Vec::new(),
            sigma: 0.25,
            orca: Form::Text,
            seed: 1,
            cpu: None,
        }
    }
}

impl Options {
    /// Mean service time of a route.
    pub fn cost(&self, route: Route) -> Nanos {
        let given = self.cost.iter().rev().find(|(of, _)| *of == route);
        given.map_or(route.default_cost(self.work), |&(_, cost)| cost)
    }

    /// Requests a second that saturate the service when they come in these proportions. Computing workers
    /// share `cpus` CPUs; what HTTP itself costs is left out, so this is an upper bound there.
    pub fn capacity_per_s(&self, mix: &[(Route, f64)], cpus: usize) -> f64 {
        let shares: f64 = mix.iter().map(|(_, share)| share).sum();
        let mean_s: f64 =
            mix.iter().map(|&(route, share)| share / shares * self.cost(route).as_secs_f64()).sum();
        let at_once = match self.work {
            WorkKind::Wait => f64::from(self.workers),
            WorkKind::Cpu => f64::from(self.workers).min(cpus as f64),
        };
        at_once / mean_s
    }
}

/// Starts the service in this process.
///
/// # Errors
/// Where the address is taken, or the CPU to run on does not exist.
pub fn start(options: Options) -> io::Result<Server> {
    server::start(options)
}

/// Lognormal service times around a mean.
struct ServiceTimes {
    rng: Rng,
    sigma: f64,
}

impl ServiceTimes {
    fn new(seed: u64, sigma: f64) -> ServiceTimes {
        ServiceTimes { rng: rng::seeded(seed, 0), sigma }
    }

    fn draw(&mut self, mean: Nanos) -> Nanos {
        let z: f64 = self.rng.sample(StandardNormal);
        // Half the variance is what the exponential adds to the mean.
        let factor = (self.sigma * z - self.sigma * self.sigma / 2.0).exp();
        Nanos::from_secs_f64(mean.as_secs_f64() * factor)
    }
}

fn parse_cost(text: &str) -> Result<(Route, Nanos), String> {
    let wrong = || format!("`{text}`: write a route and its mean service time, as in cheap=5ms");
    let (name, time) = text.split_once('=').ok_or_else(wrong)?;
    let route = Route::ALL.into_iter().find(|route| route.as_str() == name);
    let route = route.ok_or_else(|| format!("no route `{name}`; there are cheap, middling and heavy"))?;
    match time.parse::<Nanos>()? {
        Nanos::ZERO => Err(wrong()),
        cost => Ok((route, cost)),
    }
}

fn parse_sigma(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(sigma) if (0.0..=3.0).contains(&sigma) => Ok(sigma),
        _ => Err(format!("`{text}` is not a spread; write a number from 0 to 3")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_of_the_mix() {
        let wait = Options { work: WorkKind::Wait, ..Options::default() };
        assert_eq!(wait.capacity_per_s(&MIX, 1).round(), 390.0);
        let cpu = Options { work: WorkKind::Cpu, ..Options::default() };
        assert!(cpu.capacity_per_s(&MIX, 1) < 300.0);
        let only_cheap = [(Route::Cheap, 7.0)];
        assert_eq!(wait.capacity_per_s(&only_cheap, 1).round(), 1600.0);
    }

    #[test]
    fn the_last_cost_given_counts() {
        let cost = vec![parse_cost("heavy=80ms").unwrap(), parse_cost("heavy=90ms").unwrap()];
        let options = Options { cost, work: WorkKind::Wait, ..Options::default() };
        assert_eq!(options.cost(Route::Heavy), Nanos::from_millis(90));
        assert_eq!(options.cost(Route::Cheap), Nanos::from_millis(5));
        for bad in ["heavy", "huge=5ms", "heavy=5", "heavy=0s"] {
            assert!(parse_cost(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn service_times_keep_their_mean() {
        let mean = Nanos::from_millis(10);
        let mut times = ServiceTimes::new(1, 0.25);
        let drawn: Vec<f64> = (0..20_000).map(|_| times.draw(mean).as_millis_f64()).collect();
        let average = drawn.iter().sum::<f64>() / drawn.len() as f64;
        assert!((9.9..10.1).contains(&average), "{average}");
        assert!(drawn.iter().any(|&t| t < 8.0) && drawn.iter().any(|&t| t > 13.0));
        assert_eq!(ServiceTimes::new(1, 0.0).draw(mean), mean);
    }

    #[test]
    fn routes_are_found_by_their_first_segment() {
        assert_eq!(Route::of_path("/heavy"), Some(Route::Heavy));
        assert_eq!(Route::of_path("/cheap/42"), Some(Route::Cheap));
        assert_eq!(Route::of_path("/heavyweight"), None);
        assert_eq!(Route::of_path("/"), None);
    }
}
