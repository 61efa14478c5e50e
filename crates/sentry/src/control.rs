//! The worker's thread beside its data path: signals, reloads, slots that other workers hold, and the admin address.
//! None of it can hold up a request, and none of it is missed if it hangs.

use std::sync::{Arc, Weak};
use std::time::Duration;

use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, UnixStream};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::time::{Interval, MissedTickBehavior, interval};

use crate::admin::{self, Admin};
use crate::pool::Pool;
use crate::rates;
use crate::reload::Reloader;
use crate::state::Shared;
use crate::supervisor::slots_page::SlotsPage;

/// How often the workers tell each other how many slots they hold.
const SHARE_SLOTS: Duration = Duration::from_millis(20);
/// How often counters are sampled for the live page, and how often the config file is looked at.
const SAMPLE: Duration = Duration::from_secs(1);

/// What the thread looks after.
pub struct Control {
    /// What it shares with the data path.
    pub shared: Arc<Shared>,
    /// What the admin address tells.
    pub admin: Arc<Admin>,
    /// Its sockets; empty where none was handed over.
    pub admin_listeners: Vec<std::net::TcpListener>,
    /// Reloads the config.
    pub reloader: Reloader,
    /// The slots of all workers, and which of them are this one's.
    pub slots: SlotShare,
    /// Ends with the parent.
    pub parent: std::os::unix::net::UnixStream,
}

impl Control {
    /// Starts the thread. When this returns, the worker is ready for signals.
    ///
    /// # Errors
    /// Where the kernel has no resources for it.
    pub fn start(self) -> std::io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let (signals, listeners, parent) = {
            let _context = runtime.enter();
            let listeners = self.admin_listeners.iter().map(|l| TcpListener::from_std(l.try_clone()?));
            self.parent.set_nonblocking(true)?;
            (
                Signals::new()?,
                listeners.collect::<std::io::Result<Vec<_>>>()?,
                UnixStream::from_std(self.parent.try_clone()?)?,
            )
        };
        std::thread::Builder::new().name("control".into()).spawn(move || {
            runtime.block_on(self.run(signals, listeners, parent));
        })?;
        Ok(())
    }

    async fn run(mut self, mut signals: Signals, listeners: Vec<TcpListener>, mut parent: UnixStream) {
        self.admin_listeners.clear();
        let mut servers: Vec<_> = listeners
            .into_iter()
            .map(|listener| tokio::spawn(admin::serve(listener, Arc::clone(&self.admin))))
            .collect();
        // Ends with the process, as the requests do that it is about.
        tokio::spawn(rates::follow(Arc::clone(&self.shared)));
        let (mut share, mut sample) = (every(SHARE_SLOTS), every(SAMPLE));
        let mut draining = self.shared.draining();
        loop {
            tokio::select! {
                _ = share.tick() => self.slots.exchange(&self.shared),
                _ = sample.tick() => {
                    self.admin.sample();
                    self.shared.sample_busy();
                    self.shared.follow_put();
                    self.reload(Reloader::look);
                }
                _ = signals.hangup.recv() => self.reload(Reloader::reload),
                // The terminal sends it to the whole group; what it means is the parent's to say.
                _ = signals.interrupt.recv() => {}
                _ = signals.terminate.recv() => {
                    log::info!("draining");
                    self.shared.begin_drain();
                }
                _ = parent.read_u8(), if !self.shared.is_draining() => {
                    log::error!("the parent is gone: draining");
                    self.shared.begin_drain();
                }
                _ = draining.wait_for(|draining| *draining), if !servers.is_empty() => {
                    // The admin address is the next worker's from here on.
                    servers.drain(..).for_each(|server| server.abort());
                }
            }
        }
    }

    fn reload(&mut self, how: impl FnOnce(&mut Reloader)) {
        if self.shared.is_draining() {
            return;
        }
        let before = self.shared.routing().load_full();
        how(&mut self.reloader);
        let after = self.shared.routing().load_full();
        if !Arc::ptr_eq(&before, &after) {
            let replaced =
                before.pools.iter().filter(|old| !after.pools.iter().any(|new| Arc::ptr_eq(old, new)));
            self.slots.retire(replaced);
            self.slots.exchange(&self.shared);
        }
    }
}

fn every(period: Duration) -> Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
    interval
}

struct Signals {
    hangup: Signal,
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    fn new() -> std::io::Result<Signals> {
        Ok(Signals {
            hangup: signal(SignalKind::hangup())?,
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }
}

/// Slots as they are shared between workers, and between what this worker was configured to before a reload and is
/// now.
pub struct SlotShare {
    page: SlotsPage,
    seat: usize,
    /// Pools that a reload has replaced, as long as requests are with them.
    retired: Vec<Weak<Pool>>,
    full: bool,
}

impl SlotShare {
    /// Of the worker in this seat.
    pub fn new(page: SlotsPage, seat: usize) -> SlotShare {
        SlotShare { page, seat, retired: Vec::new(), full: false }
    }

    /// Says how many slots this worker's requests hold, and leaves those alone that others' hold.
    pub fn exchange(&mut self, shared: &Shared) {
        self.retired.retain(|pool| pool.strong_count() > 0);
        let routing = shared.routing().load();
        for pool in &routing.pools {
            let name = &pool.config.name;
            let retired = self.retired.iter().filter_map(Weak::upgrade).filter(|p| p.config.name == *name);
            let retired: u32 = retired.map(|pool| pool.slots.taken()).sum();
            let held = pool.slots.taken().saturating_add(retired);
            if !self.page.publish(self.seat, name, held) && !self.full {
                self.full = true;
                log::warn!(pool = name.as_str(); "too many pools to share their slots with the next worker");
            }
            shared.withhold_slots(name, self.page.held_by_others(self.seat, name).saturating_add(retired));
        }
    }

    /// Pools that a reload has replaced: what they still hold is not free yet.
    fn retire<'a>(&mut self, pools: impl Iterator<Item = &'a Arc<Pool>>) {
        self.retired.extend(pools.map(Arc::downgrade));
    }
}
