//! Files as a whole: what a good one means, and that defaults and bounds are what the definitions say.

use super::fleet::Scenario;
use super::mix::Mix;
use super::table::Field;
use super::value::Value;
use super::workload::{Arrivals, Service, Step, Workload};
use super::*;
use crate::{Nanos, Percentile, Slo};

const MS: fn(u64) -> Nanos = Nanos::from_millis;

fn read<T: Value>(text: &str) -> T {
    parse::<T>(text, "test.toml").unwrap_or_else(|errors| panic!("{errors}")).0
}

fn slo(p50_ms: u64, p90_ms: u64) -> Slo {
    Slo::new([(Percentile::P50, MS(p50_ms)), (Percentile::P90, MS(p90_ms))]).unwrap()
}

#[test]
fn the_sample_of_the_design_reads_as_meant() {
    let text = r#"
        [sentry]
        listen = "0.0.0.0:8080"
        admin  = "127.0.0.1:9900"
        [pool.shop]
        servers   = ["127.0.0.1:9001", "127.0.0.1:9002"]
        workers   = 50
        max_queue = 800
        admission = { policy = "bouncer", mode = "enforce", allowance = 0.0 }
        policing  = { policy = "auto", mode = "enforce" }
        [slo.interactive]
        p50 = "18ms"
        p90 = "50ms"
        [class.checkout]
        match    = [{ method = "POST", path = "/cart/checkout" }]
        slo      = { p50 = "60ms", p90 = "270ms" }
        priority = 1
        revenue  = 10.0
        min_rate = "20/s"
        [class.browse]
        match = [{ path = "/product/{id}" }, { header = { name = "x-tier", value = "free" } }]
        slo   = "interactive"
        pool  = "shop"
        [class.default]
        slo = { p50 = "30ms", p90 = "400ms" }
    "#;
    let (config, warnings) = parse::<Config>(text, "test.toml").unwrap();
    assert!(warnings.is_empty(), "{warnings:?}");

    assert_eq!(config.sentry.listen.0, ["0.0.0.0:8080".parse().unwrap()]);
    let [pool] = config.pools.as_slice() else { panic!("{:?}", config.pools) };
    assert_eq!((pool.name.as_str(), pool.servers.len(), pool.workers), ("shop", 2, Workers::Fixed(50)));
    assert_eq!(pool.admission, Admission { policy: Policy::Bouncer(Override::Never), mode: Mode::Enforce });
    assert_eq!(pool.policing, Policing { policy: PolicingPolicy::Auto, mode: Mode::Enforce });

    let classes: Vec<_> =
        config.classes.iter().map(|c| (c.name.as_str(), c.slo.clone(), c.priority, c.pool)).collect();
    let expected =
        [("checkout", slo(60, 270), 1, 0), ("browse", slo(18, 50), 5, 0), ("default", slo(30, 400), 5, 0)];
    assert_eq!(classes, expected);
    assert_eq!((config.classes[0].revenue, config.classes[0].min_rate), (10.0, Some(Rate { per_s: 20.0 })));
    assert_eq!(config.classes[1].matches.len(), 2);
}

#[test]
fn a_pool_is_all_that_must_be_written() {
    let config: Config = read("[pool.p]\nservers = [\"a:1\"]");
    let [class] = config.classes.as_slice() else { panic!("{:?}", config.classes) };
    assert_eq!((class.name.as_str(), class.slo.is_empty(), class.matches.len()), ("default", true, 0));
    assert_eq!(config.pools[0].workers, Workers::Adaptive);
    assert!(config.sentry.listen.0[0].ip().is_loopback());
    assert_eq!(
        (config.sentry.max_header_size.bytes, config.sentry.idle_timeout),
        (65_536, Nanos::from_secs(75))
    );
}

#[test]
fn the_default_class_comes_last_and_names_find_their_tables() {
    let config: Config = read(
        r#"
        class.default.pool = "b"
        [class.z]
        match = [{ path = "/z" }]
        pool = "b"
        [class.a]
        match = [{ path = "/a" }]
        pool = "a"
        fair_share = { header = "X-Api-Key" }
        [pool.b]
        servers = ["b:1"]
        admission = { policy = "maxqwt", limit = { z = "5ms", default = "9ms" } }
        [pool.a]
        servers = ["a:1"]
        "#,
    );
    let classes: Vec<_> = config.classes.iter().map(|class| (class.name.as_str(), class.pool)).collect();
    assert_eq!(classes, [("z", 0), ("a", 1), ("default", 0)]);
    assert_eq!(config.classes[1].fair_share, Some(FairShare::Header("x-api-key".parse().unwrap())));
    let limits = vec![("z".to_owned(), MS(5)), ("default".to_owned(), MS(9))];
    assert_eq!(config.pools[0].admission.policy, Policy::MaxQwt { limit: WaitLimit::PerClass(limits) });
}

#[test]
fn rates_are_set_where_a_table_says_so_and_followed_where_one_does() {
    let text = "[pool.p]\nservers = [\"a:1\"]\n[class.default]\nmax_rate = \"6000/m\"\n";
    let config: Config = read(&format!(
        "[sentry.rates]\ncontrollers = [\"controller:9911\", \"10.0.0.2:9911\"]\ntoken = \"correct-horse\"\n[controller.rates]\n{text}"
    ));
    let rates = config.sentry.rates.as_ref().unwrap();
    let controllers: Vec<String> = rates.controllers.iter().map(ToString::to_string).collect();
    assert_eq!(controllers, ["http://controller:9911", "http://10.0.0.2:9911"]);
    assert_eq!((rates.mode, config.classes[0].max_rate), (Mode::Enforce, Some(Rate { per_s: 100.0 })));
    assert!(!format!("{config:?}").contains("horse"));
    let served = config.controller.rates.unwrap();
    assert_eq!((served.listen.to_string().as_str(), served.token), ("127.0.0.1:9911", None));
    let config: Config = read("[pool.p]\nservers = [\"a:1\"]");
    assert_eq!((config.sentry.rates, config.controller.rates), (None, None));
}

#[test]
fn a_database_alone_is_enough() {
    let text =
        "[postgres.main]\ndsn = \"postgres://plimsoll:hush@127.0.0.1/postgres\"\nslo = { p99 = \"50ms\" }";
    let config: Config = read(text);
    let [main] = config.databases.as_slice() else { panic!("{config:?}") };
    assert_eq!((main.name.as_str(), main.mode, main.escalate), ("main", Mode::Enforce, Escalate::Never));
    assert_eq!(main.slo, Slo::new([(Percentile::P99, MS(50))]).unwrap());
    assert!(config.pools.is_empty() && config.classes.is_empty());
    assert!(main.dsn.reveal().contains("hush") && !format!("{config:?}").contains("hush"));
}

#[test]
fn databases_of_several_kinds_have_names_of_their_own() {
    let text = |name: &str| {
        format!(
            "[postgres.main]\ndsn = \"host=/run user=p\"\nslo = {{ p99 = \"50ms\" }}\n\
             [mariadb.{name}]\ndsn = \"mariadb://p:hush@127.0.0.1\"\nslo = {{ p99 = \"20ms\" }}"
        )
    };
    let search = |name: &str| {
        format!(
            "{}\n[opensearch.logs]\nurl = \"http://127.0.0.1:9200\"\nslo = {{ p99 = \"20ms\" }}\n\
             [elasticsearch.{name}]\nurl = \"https://p:hush@127.0.0.1\"\ntls_ca = \"ca.pem\"\nslo = {{ p99 = \"20ms\" }}",
            text("shop")
        )
    };
    let config: Config = read(&search("old"));
    let kinds: Vec<_> = config.databases.iter().map(|it| (it.name.as_str(), &it.kind)).collect();
    let postgres = DatabaseKind::Postgres { estimates_dsn: None, tls_ca: None };
    let mariadb = DatabaseKind::MariaDb { tls_ca: None };
    let [opensearch, elasticsearch] = [
        DatabaseKind::OpenSearch { tls_ca: None },
        DatabaseKind::Elasticsearch { tls_ca: Some("ca.pem".into()) },
    ];
    assert_eq!(kinds[..2], [("main", &postgres), ("shop", &mariadb)]);
    assert_eq!(kinds[2..], [("logs", &opensearch), ("old", &elasticsearch)]);
    assert_eq!(config.databases[3].escalate, Escalate::Never);
    assert!(!format!("{config:?}").contains("hush"));
    let error = parse::<Config>(&text("main"), "").unwrap_err().to_string();
    assert!(error.contains("there is a [postgres.main], too"), "{error}");
    let error = parse::<Config>(&search("logs"), "").unwrap_err().to_string();
    assert!(error.contains("there is a [opensearch.logs], too"), "{error}");
}

#[test]
fn a_solr_is_told_which_sentry_has_its_pool() {
    let text = |key: &str| {
        format!(
            "[sentry]\nadmin = \"127.0.0.1:9911\"\n[pool.search]\nservers = [\"127.0.0.1:8983\"]\n{key}\n\
             [solr.main]\nurl = \"http://127.0.0.1:8983\"\npool = \"search\"\nslo = {{ p99 = \"20ms\" }}"
        )
    };
    let config: Config = read(&text("solr = { time_allowed = \"5s\" }"));
    let sentry = ("127.0.0.1:9911".parse().unwrap(), None);
    assert_eq!(config.databases[0].kind, DatabaseKind::Solr { tls_ca: None, sentry });
    assert_eq!(config.pools[0].solr.as_ref().unwrap().time_allowed, Some(Nanos::from_secs(5)));
    let error = parse::<Config>(&text(""), "").unwrap_err().to_string();
    assert!(error.contains("[pool.search] is no Solr; add solr = {} to it"), "{error}");
}

#[test]
fn servers_with_workers_tell_their_status_somewhere() {
    let text = |name: &str| {
        format!(
            "[phpfpm.www]\nstatus = \"127.0.0.1:9001\"\nslo = {{ p99 = \"20ms\" }}\n\
             [httpd.{name}]\nstatus = \"/run/plimsoll.sock\"\nslo = {{ p99 = \"20ms\" }}"
        )
    };
    let config: Config = read(&text("web"));
    let kinds: Vec<_> = config.databases.iter().map(|it| (it.name.as_str(), &it.kind)).collect();
    let fpm = DatabaseKind::PhpFpm { path: "/status".to_owned() };
    assert_eq!(kinds, [("www", &fpm), ("web", &DatabaseKind::Httpd)]);
    assert_eq!(config.databases[1].dsn.reveal(), "/run/plimsoll.sock");
    let error = parse::<Config>(&text("www"), "").unwrap_err().to_string();
    assert!(error.contains("there is a [phpfpm.www], too"), "{error}");
}

#[test]
fn applications_and_databases_share_objectives_by_name() {
    let config: Config = read(
        r#"
        [slo.fast]
        p99 = "20ms"
        [app.shop]
        slo = "fast"
        mode = "shadow"
        budget = { interval = "1s", rate = "6/m", ratio = 0.001, burst = 3 }
        [postgres.main]
        dsn = "host=/run/postgresql user=plimsoll"
        slo = "fast"
        "#,
    );
    assert_eq!(config.apps[0].slo, config.databases[0].slo);
    let Rate { per_s } = config.apps[0].budget.rate;
    assert_eq!((per_s, config.apps[0].mode), (0.1, Mode::Shadow));
}

#[test]
fn trusted_proxies_are_told_from_the_rest() {
    let config: Config =
        read("[sentry]\ntrusted_proxies = [\"10.0.0.0/8\", \"::1\"]\n[pool.p]\nservers = [\"a:1\"]");
    for (peer, trusted) in
        [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("::1", true), ("11.0.0.1", false), ("::2", false)]
    {
        assert_eq!(config.sentry.trusts(peer.parse().unwrap()), trusted, "{peer}");
    }
}

#[test]
fn a_queue_may_be_as_long_as_the_backlog_counts_and_no_longer() {
    let longest = crate::backlog::MAX_QUEUE;
    let pool = |n: u32| format!("[pool.p]\nservers = [\"a:1\"]\nmax_queue = {n}");
    let class = "[class.a]\nshare = 1\nservice = { dist = \"constant\", mean = \"1ms\" }";
    let engine = |n: u32| format!("[engine]\nmax_queue = {n}\n{class}");
    assert_eq!(read::<Config>(&pool(longest)).pools[0].max_queue, longest);
    assert_eq!(read::<Workload>(&engine(longest)).engine.max_queue, longest);
    let beyond = longest + 1;
    let refused = |error: String| assert!(error.contains(&format!("from 1 to {longest}")), "{error}");
    refused(parse::<Config>(&pool(beyond), "test.toml").unwrap_err().to_string());
    refused(parse::<Workload>(&engine(beyond), "test.toml").unwrap_err().to_string());
}

#[test]
fn a_workload_reads_as_meant() {
    let workload: Workload = read(
        r#"
        [engine]
        processes = 8
        [arrivals]
        process = "on-off"
        on = "1s"
        off = "3s"
        burst = 2.5
        [class.slow]
        share = 0.10
        service = { dist = "lognormal", mean = "20.05ms", sigma = 0.92 }
        slo = { p50 = "18ms", p90 = "50ms" }
        [class.tail]
        share = 0.2
        service = { dist = "pareto", min = "1ms", alpha = 1.5 }
        slo = { p90 = "80ms" }
        [class.measured]
        share = 0.7
        service = { dist = "empirical", values = ["1ms", "2ms"] }
        "#,
    );
    assert_eq!((workload.engine.processes, workload.engine.max_queue), (8, 800));
    let (on, off) = (Nanos::from_secs(1), Nanos::from_secs(3));
    assert_eq!(workload.arrivals, Arrivals::OnOff { on, off, burst: 2.5, lull: 0.5 });
    assert_eq!(workload.classes[0].service, Service::Lognormal { mean: Nanos(20_050_000), sigma: 0.92 });
    assert_eq!(workload.classes[1].service, Service::Pareto { min: MS(1), alpha: 1.5 });
    assert_eq!(workload.classes[2].service, Service::Empirical { values: vec![MS(1), MS(2)] });
    assert_eq!(workload.default_slo, Slo::new([(Percentile::P90, MS(80))]).unwrap(), "the loosest");
}

#[test]
fn the_objective_of_classes_never_seen_may_be_written() {
    let workload: Workload = read(
        r#"
        [arrivals]
        process = "schedule"
        schedule = [["0s", 0.9], ["30s", 1.5]]
        [class.a]
        share = 1.0
        service = { dist = "constant", mean = "5ms" }
        slo = { p50 = "400ms", p90 = "500ms" }
        [class.default]
        share = 0.0
        slo = { p50 = "18ms", p90 = "50ms" }
        "#,
    );
    let steps = [(0, 0.9), (30, 1.5)].map(|(s, factor)| Step { start: Nanos::from_secs(s), factor });
    assert_eq!(workload.arrivals, Arrivals::Schedule(steps.to_vec()));
    assert_eq!((workload.classes.len(), workload.default_slo), (1, slo(18, 50)));
}

#[test]
fn the_shares_of_a_mix_become_fractions() {
    let mix: Mix = read(
        r#"
        [request.buy]
        method = "POST"
        path = "/cart?x=1"
        share = 25
        body = "{}"
        headers = { Content-Type = "application/json", te = "trailers" }
        deadline = "50ms"
        [request.browse]
        path = "/"
        share = 75
        "#,
    );
    let [buy, browse] = mix.requests.as_slice() else { panic!("{mix:?}") };
    assert_eq!((buy.share, browse.share), (0.25, 0.75));
    assert_eq!((buy.method.as_str(), buy.path.as_str(), buy.deadline), ("POST", "/cart?x=1", Some(MS(50))));
    assert_eq!((buy.headers[0].0.as_str(), buy.headers.len()), ("content-type", 2));
    let even: Mix = read("[request.a]\npath = \"/a\"\n[request.b]\npath = \"/b\"");
    assert_eq!(even.requests[1].share, 0.5);
}

/// What is said about a file with one key more than nothing.
fn said<T: Value>(section: &Field, key: &str, toml: &str) -> String {
    let name = if section.shape.named { format!("{}.x", section.key) } else { section.key.to_owned() };
    match parse::<T>(&format!("[{name}]\n{key} = {toml}\n"), "test.toml") {
        Ok(_) => String::new(),
        Err(errors) => errors.to_string(),
    }
}

fn check_fields<T: Value>(section: &Field, prefix: &str, fields: &[Field], checked: &mut usize) {
    for field in fields {
        let key = format!("{prefix}{}", field.key);
        let (low, high) = field.range.unzip();
        for toml in [field.default, low, high].into_iter().flatten() {
            // Panics where the definition's own bounds cannot be read.
            let said = said::<T>(section, &key, toml);
            let about = format!("`{}`: ", field.key);
            assert!(!said.contains(&about), "{key} = {toml} in [{}]: {said}", section.key);
            *checked += 1;
        }
        check_fields::<T>(section, &format!("{key}."), field.shape.fields, checked);
    }
}

#[test]
fn defaults_and_bounds_can_be_written_out() {
    let mut checked = 0;
    for section in Config::SHAPE.fields {
        check_fields::<Config>(section, "", section.shape.fields, &mut checked);
    }
    for section in Workload::SHAPE.fields {
        check_fields::<Workload>(section, "", section.shape.fields, &mut checked);
    }
    for section in Mix::SHAPE.fields {
        check_fields::<Mix>(section, "", section.shape.fields, &mut checked);
    }
    for section in Scenario::SHAPE.fields {
        check_fields::<Scenario>(section, "", section.shape.fields, &mut checked);
    }
    assert!(checked > 100, "{checked}");
}

#[test]
fn every_key_is_documented() {
    fn walk(fields: &[Field]) {
        for field in fields {
            let doc = super::table::joined(field.doc);
            assert!(doc.len() > 5 && doc.ends_with(['.', ')']), "{}: {doc}", field.key);
            walk(field.shape.fields);
        }
    }
    for shape in [Config::SHAPE, Workload::SHAPE, Mix::SHAPE, Scenario::SHAPE] {
        walk(shape.fields);
    }
}

#[test]
fn an_etcd_is_sent_all_that_comes_unless_its_pool_says_otherwise() {
    let workers = |more: &str| {
        let text = format!(
            "[pool.kv]\nservers = [\"127.0.0.1:1\"]\n{more}\n[etcd.main]\nslo = {{ p99 = \"50ms\" }}"
        );
        parse::<Config>(&text, "").unwrap_or_else(|errors| panic!("{errors}")).0.pools[0].workers
    };
    assert_eq!(workers(""), Workers::Fixed(4_096));
    assert_eq!(workers("workers = 7"), Workers::Fixed(7));
}
