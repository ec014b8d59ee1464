//! panics thread|main|segv: a panic or a crash below functions whose names need demangling.
//!   thread  in a thread named tokio-runtime-w; main joins it and goes on
//!   main    in the main thread: the process ends
//!   segv    a segmentation fault in such a thread, which Rust's own handler sees first
//! Compiles with Rust 1.63.

use std::io::{self, BufRead, Write};
use std::thread;

mod engine {
    pub mod scheduler {
        pub trait Step {
            fn advance(&self, index: usize) -> u32;
        }

        pub struct Batch<T>(pub Vec<T>);

        impl<T: Copy + Into<u32>> Step for Batch<T> {
            #[inline(never)]
            fn advance(&self, index: usize) -> u32 {
                let next = move |offset: usize| self.0[index + offset].into();
                next(1)
            }
        }

        /// Panics: the index is out of bounds.
        #[inline(never)]
        pub fn decode_step(tokens: &Batch<u16>) -> u32 {
            tokens.advance(tokens.0.len() + 2)
        }

        #[inline(never)]
        pub fn wild_write() {
            unsafe { std::ptr::write_volatile(0xdead0 as *mut u32, 1) }
        }
    }
}

extern "C" {
    fn gettid() -> i32;
}

fn say(line: &str) {
    println!("{}", line);
    io::stdout().flush().unwrap();
}

fn wait_for_step() {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
}

fn in_thread(work: fn() -> u32) {
    let body = move || {
        say(&format!("{{\"phase\": \"thread\", \"tid\": {}}}", unsafe { gettid() }));
        wait_for_step();
        work()
    };
    let joined = thread::Builder::new().name("tokio-runtime-w".into()).spawn(body).unwrap().join();
    say(&format!("{{\"phase\": \"joined\", \"panicked\": {}}}", joined.is_err()));
    wait_for_step();
}

fn panic_at_once() -> u32 {
    engine::scheduler::decode_step(&engine::scheduler::Batch(vec![7]))
}

fn crash_at_once() -> u32 {
    engine::scheduler::wild_write();
    0
}

fn main() {
    let kind = std::env::args().nth(1).expect("thread, main or segv");
    say(&format!("{{\"phase\": \"ready\", \"pid\": {}}}", std::process::id()));
    wait_for_step();
    match kind.as_str() {
        "thread" => in_thread(panic_at_once),
        "segv" => in_thread(crash_at_once),
        _ => say(&panic_at_once().to_string()),
    }
}
