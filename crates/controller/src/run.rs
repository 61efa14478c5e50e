//! The controller from its start to its end: waits until it leads, and acts for as long as it does.

use std::path::PathBuf;
use std::sync::Arc;

use plimsoll_core::config::{Config, Mode};
use tokio::sync::watch;
use tokio::task::LocalSet;

use crate::admin::Admin;
use crate::lead::{Seat, Signals};
use crate::record::Recorder;
use crate::rounds::Controller;
use crate::status::Status;
use crate::telemetry::{self, Telemetry};

/// What to run.
pub struct Options {
    /// The config.
    pub config: Config,
    /// The file it is from, for the sentries that are started.
    pub config_file: PathBuf,
    /// Whether what was started ends with the controller.
    pub stop_servers: bool,
    /// Where it is written down what rates are decided by, if anywhere.
    pub record: Option<PathBuf>,
}

/// Runs until it is told to end.
///
/// # Errors
/// Why it cannot begin, in words for the operator.
pub fn run(options: Options) -> Result<(), String> {
    if options.config.pools.iter().all(|pool| pool.provision.is_none())
        && options.config.controller.sentry_ports.is_none()
        && options.config.controller.rates.is_none()
        && options.config.controller.telemetry.is_none()
    {
        return Err("there is nothing to do: no pool has `provision`, there are no `sentry_ports`, and there is neither \
                    [controller.rates] nor [controller.telemetry]"
            .to_owned());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| format!("cannot start: {error}"))?;
    runtime.block_on(async {
        let mut signals = Signals::new().map_err(|error| format!("cannot catch signals: {error}"))?;
        if options.config.controller.mode != Mode::Enforce {
            // Whoever does not act is in nobody's way.
            let place = Place::start(&options).await?;
            let term = LocalSet::new();
            return term
                .run_until(async {
                    Controller::start(&options, &place, None).await?.serve(&mut signals).await;
                    Ok(())
                })
                .await;
        }
        let mut seat = Seat::of(&options.config.controller)?;
        let ended = hold(&options, &mut seat, &mut signals).await;
        seat.leave().await;
        ended
    })
}

/// Acts whenever it leads, until it is told to end.
async fn hold(options: &Options, seat: &mut Seat, signals: &mut Signals) -> Result<(), String> {
    let mut place = None;
    if seat.is_shared() {
        place = Some(Place::start(options).await?.shows(seat));
    }
    loop {
        let term = tokio::select! {
            term = seat.take() => term?,
            () = signals.wait() => return Ok(()),
        };
        let place: &Place = match &place {
            Some(place) => place,
            None => place.insert(Place::start(options).await?.shows(seat)),
        };
        // Whatever it has begun ends with it, wherever it has got to.
        let tasks = LocalSet::new();
        let acting = tasks.run_until(async {
            let mut controller = Controller::start(options, place, Some(&term)).await?;
            controller.serve(signals).await;
            if options.stop_servers {
                controller.stop_servers(signals).await;
            }
            Ok(())
        });
        tokio::select! {
            biased;
            () = seat.lost(&term) => {}
            ended = acting => return ended,
        }
        place.status.send_modify(Status::stand_by);
    }
}

/// What a controller has whether it leads or not: what it shows, and what it learns.
pub struct Place {
    /// What is shown.
    pub status: watch::Sender<Status>,
    /// What is learnt of the fleet, if anything.
    pub telemetry: Option<Telemetry>,
    /// What was seen of the fleet, as a scenario.
    pub recorded: watch::Sender<Option<Arc<str>>>,
    /// Where it is written down what rates are decided by, if anywhere.
    pub recorder: Option<Recorder>,
}

impl Place {
    async fn start(options: &Options) -> Result<Place, String> {
        let settings = &options.config.controller;
        let services = options.config.pools.iter().filter_map(|pool| pool.service.clone()).collect();
        let (status, shown) = watch::channel(Status { services, ..Status::new(settings.mode) });
        let telemetry = settings.telemetry.as_ref();
        let telemetry = telemetry.map(|of| telemetry::start(of, &options.config.classes)).transpose()?;
        if let Some(telemetry) = &telemetry {
            log::info!(listening:? = telemetry.listening; "the fleet is learnt");
        }
        let (token, classes) = (settings.admin_token.clone(), options.config.classes.clone());
        let recorded = watch::Sender::new(None);
        let admin = Admin {
            token,
            status: shown,
            telemetry: telemetry.clone(),
            classes,
            recorded: recorded.subscribe(),
        };
        let bound = admin.start(settings.admin).await;
        let bound = bound
            .map_err(|error| format!("cannot listen on {}, `[controller] admin`: {error}", settings.admin))?;
        log::info!(admin:% = bound, mode:% = settings.mode; "controller ready");
        let recorder = options.record.as_deref().map(Recorder::create).transpose()?;
        Ok(Place { status, telemetry, recorded, recorder })
    }

    /// Shows who leads, too.
    fn shows(self, seat: &Seat) -> Place {
        let (mut leadership, status) = (seat.leadership(), self.status.clone());
        tokio::spawn(async move {
            loop {
                let now = leadership.borrow_and_update().clone();
                status.send_modify(|status| status.leadership = Some(now));
                if leadership.changed().await.is_err() {
                    return;
                }
            }
        });
        self
    }
}
