//! arena [CAPACITY]: an allocator of its own, with the two functions that a tracer would be told to pair.
//! Compiles with Rust 1.63.

use std::io::{self, BufRead, Write};
use std::sync::Mutex;

struct Arena {
    capacity: usize,
    sizes: Vec<(usize, usize)>, // address and bytes of each block that is live
    next: usize,
    live: usize,
}

static ARENA: Mutex<Arena> = Mutex::new(Arena { capacity: 0, sizes: Vec::new(), next: 0x10_0000, live: 0 });

/// The address of a block, which nobody may touch, or null where the capacity is used up.
#[no_mangle]
#[inline(never)]
pub extern "C" fn arena_alloc(size: usize) -> *mut u8 {
    let mut arena = ARENA.lock().unwrap();
    if size > arena.capacity - arena.live {
        return std::ptr::null_mut();
    }
    let address = arena.next;
    arena.next += size + 64;
    arena.live += size;
    arena.sizes.push((address, size));
    address as *mut u8
}

#[no_mangle]
#[inline(never)]
pub extern "C" fn arena_free(block: *mut u8) {
    let mut arena = ARENA.lock().unwrap();
    let index = arena.sizes.iter().position(|(address, _)| *address == block as usize).expect("a live block");
    let (_, size) = arena.sizes.swap_remove(index);
    arena.live -= size;
}

#[derive(Default)]
pub struct Tally {
    allocs: usize,
    bytes: usize,
    frees: usize,
    freed_bytes: usize,
    failures: usize,
}

mod cache {
    pub mod kv {
        pub struct KvCache;

        impl KvCache {
            #[inline(never)]
            pub fn append_block(&self, tally: &mut crate::Tally, size: usize) -> *mut u8 {
                let block = crate::arena_alloc(size);
                if block.is_null() {
                    tally.failures += 1;
                } else {
                    tally.allocs += 1;
                    tally.bytes += size;
                }
                block
            }
        }
    }
}

fn wait_for_step() {
    let mut line = String::new();
    if io::stdin().lock().read_line(&mut line).unwrap() == 0 {
        std::process::exit(0);
    }
}

fn say(phase: &str, tally: &Tally) {
    println!(
        "{{\"phase\": \"{}\", \"allocs\": {}, \"bytes\": {}, \"frees\": {}, \"freed_bytes\": {}, \"failures\": {}}}",
        phase, tally.allocs, tally.bytes, tally.frees, tally.freed_bytes, tally.failures
    );
    io::stdout().flush().unwrap();
    wait_for_step();
}

fn main() {
    let capacity = std::env::args().nth(1).map_or(1 << 20, |text| text.parse().expect("a number of bytes"));
    ARENA.lock().unwrap().capacity = capacity;
    let cache = cache::kv::KvCache;
    let mut tally = Tally::default();
    println!("{{\"phase\": \"ready\", \"pid\": {}}}", std::process::id());
    io::stdout().flush().unwrap();
    wait_for_step();

    let blocks: Vec<_> = (0..100).map(|i| (cache.append_block(&mut tally, 1000 + i), 1000 + i)).collect();
    say("allocated", &tally);
    for (block, size) in blocks.iter().take(50).filter(|(block, _)| !block.is_null()) {
        arena_free(*block);
        tally.frees += 1;
        tally.freed_bytes += size;
    }
    say("freed", &tally);
    cache.append_block(&mut tally, capacity + 1);
    say("failing", &tally);
}
