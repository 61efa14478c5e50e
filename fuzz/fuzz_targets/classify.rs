//! Classification: the tree finds the rule that a scan in the order of the file finds, and a rule said to cover
//! another one does.
//!
//! The input is lines of `METHOD PATH HOST HEADER=VALUE`, where `-` is a field left out: rules up to an empty line,
//! each a class of its own, then requests. A rule whose method is `grpc` has a gRPC method for a path.
#![no_main]

use http::{HeaderName, Method};
use libfuzzer_sys::fuzz_target;
use plimsoll_core::classify::{Classifier, is_grpc};
use plimsoll_core::config::{Class, HeaderMatch, Match};
use plimsoll_core::{MAX_CLASSES, Slo};

fuzz_target!(|text: &str| {
    let mut lines = text.lines();
    let rules = lines.by_ref().take_while(|line| !line.is_empty()).filter_map(rule);
    let rules: Vec<Match> = rules.take(MAX_CLASSES - 1).collect();
    let mut classes: Vec<Class> = rules.iter().map(|rule| class(vec![rule.clone()])).collect();
    classes.push(class(Vec::new()));
    let classifier = Classifier::new(&classes);
    for request in lines.filter_map(Request::read) {
        let fitting: Vec<usize> = (0..rules.len()).filter(|&i| request.fits(&rules[i])).collect();
        let found =
            classifier.classify(request.method, request.path, request.host, |name| request.header(name));
        assert_eq!(found.index(), fitting.first().copied().unwrap_or(rules.len()), "{request:?}");
        for (narrow, wide) in fitting.iter().flat_map(|&i| (0..rules.len()).map(move |j| (i, j))) {
            assert!(
                !rules[wide].covers(&rules[narrow]) || request.fits(&rules[wide]),
                "{:?} does not cover {:?}: {request:?}",
                rules[wide],
                rules[narrow]
            );
        }
    }
});

fn rule(line: &str) -> Option<Match> {
    let [method, path, host, header] = fields(line)?;
    let grpc = method == Some("grpc");
    Some(Match {
        method: method.filter(|_| !grpc).map(|m| m.parse::<Method>()).transpose().ok()?,
        path: path.filter(|_| !grpc).map(str::parse).transpose().ok()?,
        host: host.map(str::parse).transpose().ok()?,
        header: header.map(header_match).transpose().ok()?,
        grpc: path.filter(|_| grpc).map(str::parse).transpose().ok()?,
    })
}

fn header_match(text: &str) -> Result<HeaderMatch, String> {
    let (name, value) = header(text)?;
    Ok(HeaderMatch { name, value: value.parse()? })
}

fn header(text: &str) -> Result<(HeaderName, &str), String> {
    let (name, value) = text.split_once('=').ok_or("no value")?;
    Ok((name.parse().map_err(|_| "no name")?, value))
}

fn fields(line: &str) -> Option<[Option<&str>; 4]> {
    let fields: Vec<_> = line.split(' ').map(|field| Some(field).filter(|&f| f != "-")).collect();
    fields.try_into().ok()
}

fn class(matches: Vec<Match>) -> Class {
    Class {
        name: String::new(),
        matches,
        slo: Slo::default(),
        priority: 5,
        revenue: 1.0,
        min_rate: None,
        max_rate: None,
        service_time: None,
        pool: 0,
        fair_share: None,
    }
}

#[derive(Debug)]
struct Request<'a> {
    method: &'a str,
    path: &'a str,
    host: &'a str,
    header: Option<(HeaderName, &'a str)>,
}

impl<'a> Request<'a> {
    fn read(line: &'a str) -> Option<Request<'a>> {
        let [method, path, host, header] = fields(line)?;
        let header = header.map(self::header).transpose().ok()?;
        Some(Request { method: method?, path: path?, host: host.unwrap_or(""), header })
    }

    fn header(&self, name: &HeaderName) -> Option<&'a [u8]> {
        self.header.as_ref().filter(|(own, _)| own == name).map(|(_, value)| value.as_bytes())
    }

    /// By trying every field, as the config's docs say it.
    fn fits(&self, rule: &Match) -> bool {
        let Match { method, path, host, header, grpc } = rule;
        let content_type = self.header(&http::header::CONTENT_TYPE);
        method.as_ref().is_none_or(|m| m.as_str() == self.method)
            && path.as_ref().is_none_or(|p| p.fits(self.path))
            && host.as_ref().is_none_or(|h| h.fits(self.host))
            && header.as_ref().is_none_or(|h| self.header(&h.name).is_some_and(|v| h.value.fits(v)))
            && grpc.as_ref().is_none_or(|g| {
                g.path().fits(self.path) && self.method == "POST" && content_type.is_some_and(is_grpc)
            })
    }
}
