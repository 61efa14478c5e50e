//! A client that keeps nothing between requests.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Sends a request on a connection of its own and leaves the answer to be read.
pub fn send(addr: SocketAddr, method: &str, target: &str) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    write!(stream, "{method} {target} HTTP/1.1\r\nhost: testbed\r\nconnection: close\r\n\r\n")?;
    Ok(stream)
}

/// The whole answer, head and body.
pub fn ask(addr: SocketAddr, method: &str, target: &str) -> io::Result<String> {
    let mut answer = String::new();
    send(addr, method, target)?.read_to_string(&mut answer)?;
    Ok(answer)
}

/// The whole answer to a GET, which must come.
pub fn get(addr: SocketAddr, target: &str) -> String {
    ask(addr, "GET", target).unwrap()
}

/// The numbers of a report as text: CPU and data time in seconds, queueing delay in milliseconds, requests in service.
pub fn reported(answer: &str) -> [f64; 4] {
    let (_, report) = answer.split_once("endpoint-load-metrics: TEXT ").expect("a load report");
    let names =
        ["request_cost.cpu", "request_cost.data", "named_metrics.queue_delay_ms", "named_metrics.in_service"];
    let mut numbers = report.split("\r\n").next().unwrap().split(", ");
    names.map(|name| {
        let (named, number) = numbers.next().unwrap().split_once('=').unwrap();
        assert_eq!(named, name);
        number.parse().unwrap()
    })
}
