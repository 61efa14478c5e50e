//! A private Apache httpd 2.4 on a port of loopback, with a page to read and a page that computes. It is ended by its process id,
//! whatever becomes of this program.

use std::fs::{self, Permissions};
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::TempDir;

use crate::processes::{Process, answers, directory, free_addresses};

/// Where Debian keeps the server and what it loads.
const PROGRAM: &str = "/usr/sbin/apache2";
const MODULES: &str = "/usr/lib/apache2/modules";
/// Ours.
const MODULE: &str = "mod_plimsoll.so";
/// Who answers requests, where this program may choose.
const USER: &str = "www-data";
/// Page of job class S (section 5.3), 8 KiB.
pub const STATIC: &str = "/page.html";
const STATIC_BYTES: usize = 8 << 10;
/// What the page that computes makes of `n`: a fixed amount of work, the same in every setting.
const COMPUTES: &str = "<?php\n\
    $x = 1;\n\
    for ($i = 0, $n = (int) ($_GET['n'] ?? 0); $i < $n; $i++) { $x = ($x * 31 + $i) % 1000003; }\n\
    echo $x, \"\\n\";\n";
/// So many rounds take about a millisecond of a CPU of today (24 ns each here); nothing depends on how nearly.
const ROUNDS_PER_MS: f64 = 42_000.0;

/// The page of job class D that takes about so long.
pub fn computing(ms: f64) -> String {
    format!("/page.php?n={}", (ms * ROUNDS_PER_MS) as u64)
}

/// A server with its processes.
pub struct Apache {
    /// Where it is.
    pub addr: SocketAddr,
    // It ends before its files go.
    process: Process,
    _directory: TempDir,
}

impl Apache {
    /// Whether this machine has one, with PHP.
    pub fn is_here() -> bool {
        Path::new(PROGRAM).exists() && php().is_some()
    }

    /// Whether our module is where it looks for modules: `make -C sdk/httpd install`.
    pub fn has_module() -> bool {
        Path::new(MODULES).join(MODULE).exists()
    }

    /// Starts one with so many worker processes, all of them at once: how a pool grows when a server starts is not what is measured. Our module
    /// holds them to `max_slowdown`, if that is given.
    pub async fn start(workers: u32, max_slowdown: Option<f64>) -> Result<Apache, String> {
        let directory = directory()?;
        let root = directory.path();
        let [addr] = free_addresses()?;
        let write = |name: &str, text: &str| {
            let file = root.join(name);
            fs::write(&file, text).map_err(|e| format!("cannot write {}: {e}", file.display()))
        };
        let pages = root.join("pages");
        fs::create_dir(&pages).map_err(|e| format!("cannot make {}: {e}", pages.display()))?;
        write("pages/page.html", &"plimsoll".repeat(STATIC_BYTES / 8))?;
        write("pages/page.php", COMPUTES)?;
        // Workers that are another user's must be able to read the pages.
        fs::set_permissions(root, Permissions::from_mode(0o755)).map_err(|e| e.to_string())?;
        write("httpd.conf", &conf(root, addr, workers, max_slowdown)?)?;
        let mut command = Command::new(PROGRAM);
        command.arg("-f").arg(root.join("httpd.conf")).args(["-D", "FOREGROUND"]);
        command.stdout(Stdio::null()).stderr(Stdio::null());
        // It ends its whole process group, which is its own.
        let process = Process::start(command)?;
        let apache = Apache { addr, process, _directory: directory };
        answers(addr, STATIC, "Apache").await.map_err(|error| {
            let log = fs::read_to_string(apache._directory.path().join("errors")).unwrap_or_default();
            format!("{error}\n{log}")
        })?;
        Ok(apache)
    }

    /// The process whose children answer requests.
    pub fn master(&self) -> u32 {
        self.process.id()
    }
}

/// The module, whatever its version.
fn php() -> Option<PathBuf> {
    let names = fs::read_dir(MODULES).ok()?.flatten().map(|entry| entry.path());
    names.into_iter().find(|path| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        name.starts_with("libphp") && name.ends_with(".so")
    })
}

fn conf(root: &Path, addr: SocketAddr, workers: u32, max_slowdown: Option<f64>) -> Result<String, String> {
    let php = php().ok_or("there is no PHP for Apache")?;
    let (root, php) = (root.display(), php.display());
    // Who is not root answers under its own name.
    let user = if rustix::process::geteuid().is_root() {
        format!("User {USER}\nGroup {USER}\n")
    } else {
        String::new()
    };
    let ours = max_slowdown.map_or(String::new(), |bound| {
        format!("LoadModule plimsoll_module {MODULES}/{MODULE}\nPlimsollMaxSlowdown {bound}\n")
    });
    Ok(format!(
        r#"ServerRoot "{root}"
DefaultRuntimeDir "{root}"
PidFile "{root}/pid"
ErrorLog "{root}/errors"
ServerName localhost
Listen {addr}
{user}LoadModule mpm_prefork_module {MODULES}/mod_mpm_prefork.so
LoadModule authz_core_module {MODULES}/mod_authz_core.so
LoadModule php_module {php}
{ours}DocumentRoot "{root}/pages"
<FilesMatch "\.php$">
  SetHandler application/x-httpd-php
</FilesMatch>
ServerLimit {workers}
MaxRequestWorkers {workers}
StartServers {workers}
MinSpareServers 1
MaxSpareServers {workers}
"#
    ))
}
