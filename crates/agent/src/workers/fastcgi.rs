//! One request at a time over FastCGI, version 1: as much of the protocol as a GET needs.

use std::io::{Error, ErrorKind, Result};

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::status::Stream;

/// Kinds of records.
const BEGIN: u8 = 1;
const END: u8 = 3;
const PARAMETERS: u8 = 4;
const INPUT: u8 = 5;
const OUTPUT: u8 = 6;
const ERRORS: u8 = 7;
/// The role in which the server answers, and that the connection stays.
const RESPONDER: u8 = 1;
const KEEP: u8 = 1;
/// Each request has this number: there is one at a time.
const NUMBER: u8 = 1;
/// The longest answer that is read: a page of some ten thousand workers.
const LONGEST: usize = 8 << 20;

/// What the server answers.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// As in HTTP.
    pub status: u16,
    /// What follows the headers.
    pub body: Vec<u8>,
}

/// Asks for `path` with `query` over a connection that stays.
///
/// # Errors
/// Where the connection breaks, or the answer is none.
pub async fn get(stream: &mut Stream, path: &str, query: &str) -> Result<Answer> {
    stream.write_all(&request(path, query)).await?;
    let mut output = Vec::new();
    loop {
        let mut header = [0; 8];
        stream.read_exact(&mut header).await?;
        let [version, kind, _, number, high, low, padding, _] = header;
        if (version, number) != (1, NUMBER) {
            return Err(wrong("it does not speak FastCGI"));
        }
        let length = usize::from(u16::from_be_bytes([high, low]));
        let mut content = vec![0; length + usize::from(padding)];
        stream.read_exact(&mut content).await?;
        match kind {
            OUTPUT if output.len() + length > LONGEST => return Err(wrong("its answer is too long")),
            OUTPUT => output.extend_from_slice(&content[..length]),
            ERRORS => {}
            END => return answer(&output),
            _ => return Err(wrong("it does not speak FastCGI")),
        }
    }
}

fn request(path: &str, query: &str) -> Vec<u8> {
    let mut parameters = Vec::new();
    for (name, value) in [
        ("REQUEST_METHOD", "GET"),
        ("SCRIPT_NAME", path),
        ("SCRIPT_FILENAME", path),
        ("REQUEST_URI", path),
        ("QUERY_STRING", query),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
    ] {
        length(&mut parameters, name);
        length(&mut parameters, value);
        parameters.extend_from_slice(name.as_bytes());
        parameters.extend_from_slice(value.as_bytes());
    }
    let mut bytes = Vec::new();
    record(&mut bytes, BEGIN, &[0, RESPONDER, KEEP, 0, 0, 0, 0, 0]);
    record(&mut bytes, PARAMETERS, &parameters);
    record(&mut bytes, PARAMETERS, &[]);
    record(&mut bytes, INPUT, &[]);
    bytes
}

/// Lengths above 127 take four bytes, the first with its highest bit set.
fn length(bytes: &mut Vec<u8>, text: &str) {
    match u8::try_from(text.len()) {
        Ok(short @ ..128) => bytes.push(short),
        _ => bytes.extend_from_slice(&(text.len() as u32 | 1 << 31).to_be_bytes()),
    }
}

/// What is sent here is short: a path is at most a few KiB.
fn record(bytes: &mut Vec<u8>, kind: u8, content: &[u8]) {
    let [high, low] = (content.len() as u16).to_be_bytes();
    bytes.extend_from_slice(&[1, kind, 0, NUMBER, high, low, 0, 0]);
    bytes.extend_from_slice(content);
}

fn answer(output: &[u8]) -> Result<Answer> {
    let end = output.windows(4).position(|bytes| bytes == b"\r\n\r\n");
    let end = end.ok_or_else(|| wrong("its answer has no end of headers"))?;
    let headers = String::from_utf8_lossy(&output[..end]);
    let status = headers.lines().find_map(|line| line.strip_prefix("Status:"));
    let status = status.map_or(Some(200), |status| status.trim().get(..3)?.parse().ok());
    let status = status.ok_or_else(|| wrong("its answer has a status that is none"))?;
    Ok(Answer { status, body: output[end + 4..].to_vec() })
}

fn wrong(what: &str) -> Error {
    Error::new(ErrorKind::InvalidData, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a server sends, and what it was sent.
    async fn asked(answer: Vec<u8>) -> (Result<Answer>, Vec<u8>) {
        let (ours, mut theirs) = tokio::io::duplex(1 << 16);
        let server = async move {
            theirs.write_all(&answer).await.unwrap();
            let mut got = vec![0; request("/status", "full&json").len()];
            theirs.read_exact(&mut got).await.unwrap();
            got
        };
        let mut stream: Stream = Box::new(ours);
        tokio::join!(get(&mut stream, "/status", "full&json"), server)
    }

    fn records(all: &[(u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        all.iter().for_each(|&(kind, content)| record(&mut bytes, kind, content));
        bytes
    }

    #[tokio::test]
    async fn an_answer_in_pieces_is_one() {
        let pieces: [(u8, &[u8]); 4] = [
            (OUTPUT, b"Content-type: text/plain\r\n\r"),
            (ERRORS, b"a word"),
            (OUTPUT, b"\nok"),
            (END, &[0; 8]),
        ];
        let (answer, sent) = asked(records(&pieces)).await;
        assert_eq!(answer.unwrap(), Answer { status: 200, body: b"ok".to_vec() });
        // Begin, of a responder, on a connection that stays; then the first parameter.
        assert_eq!(sent[..16], [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(sent[24..43], *b"\x0e\x03REQUEST_METHODGET");
        assert!(sent.ends_with(&[1, 4, 0, 1, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0]));
    }

    #[tokio::test]
    async fn what_is_wrong_is_an_error() {
        let (answer, _) = asked(records(&[(OUTPUT, b"Status: 404 Not Found\r\n\r\n"), (END, &[0; 8])])).await;
        assert_eq!(answer.unwrap().status, 404);
        for (bytes, said) in [
            (b"HTTP/1.1 400 Bad Request\r\n".to_vec(), "does not speak FastCGI"),
            (records(&[(9, b"")]), "does not speak FastCGI"),
            (records(&[(OUTPUT, b"no headers"), (END, &[0; 8])]), "no end of headers"),
            (records(&[(OUTPUT, b"Status: x\r\n\r\n"), (END, &[0; 8])]), "a status that is none"),
        ] {
            let error = asked(bytes).await.0.unwrap_err().to_string();
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn long_texts_have_long_lengths() {
        let mut bytes = Vec::new();
        length(&mut bytes, &"x".repeat(127));
        length(&mut bytes, &"x".repeat(128));
        assert_eq!(bytes, [127, 0x80, 0, 0, 128]);
    }
}
