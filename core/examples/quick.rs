use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::RwLock;
use std::time::Duration;
use tidegate_core::*;
fn key(i: u32) -> Vec<u8> {
    if i == 0 {
        return vec![];
    }
    let mut k = b"t\x80\0\0\0\0\0\0\xff\x45_r\x80\0\0\0\0\xff".to_vec();
    k.extend(i.to_be_bytes());
    k.extend([0, 0, 0, 0xfb]);
    k
}
struct Instant(u64);
fn cpu() -> u64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .unwrap()
        .split_whitespace()
        .next()
        .unwrap()
        .parse()
        .unwrap()
}
impl Instant {
    fn now() -> Self {
        Self(cpu())
    }
    fn elapsed(&self) -> Duration {
        Duration::from_nanos(cpu() - self.0)
    }
}
const N: u32 = 1_000_000;
fn region(i: u32, v: u64) -> Region {
    let p = |n| Peer {
        id: u64::from(i) * 4 + n,
        store_id: n,
        role: PeerRole::Voter,
        is_witness: false,
    };
    let end = if i + 1 == N { vec![] } else { key(i + 1) };
    Region::builder(
        u64::from(i) * 4 + 1,
        KeyRange::new(key(i), end).unwrap(),
        RegionEpoch::new(v, v),
    )
    .peers([p(1), p(2), p(3)])
    .leader(Some(p(1)))
    .build()
    .unwrap()
}
struct Rng(u64);
impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}
fn rss() -> u64 {
    let s = std::fs::read_to_string("/proc/self/status").unwrap();
    s.lines()
        .find(|l| l.starts_with("VmRSS"))
        .unwrap()
        .split_whitespace()
        .nth(1)
        .unwrap()
        .parse::<u64>()
        .unwrap()
        * 1024
}
fn main() {
    let mut rng = Rng(88172645463325252);
    let at = Provenance::Stream {
        received_at: Moment::from_nanos(1),
    };
    let mut order: Vec<u32> = (0..N).collect();
    for i in (1..order.len()).rev() {
        order.swap(i, (rng.next() % (i as u64 + 1)) as usize);
    }
    let r0 = rss();
    let map = RegionMap::new();
    let t = Instant::now();
    for chunk in order.chunks(1000) {
        let mut b = Batch::with_capacity(1000);
        for &i in chunk {
            b.put(region(i, 2), at);
        }
        let _ = map.apply(b);
    }
    println!(
        "load {:?} per op {:?} rss/region {} {:?}",
        t.elapsed(),
        t.elapsed() / N,
        (rss() - r0) / u64::from(N),
        map.stats()
    );
    let keys: Vec<Vec<u8>> = (0..1 << 20)
        .map(|_| {
            let mut k = key((rng.next() % u64::from(N)) as u32);
            k.push(1);
            k
        })
        .collect();
    for _ in 0..2 {
        let t = Instant::now();
        let mut sum = 0u64;
        for k in &keys {
            let s = map.pin();
            let e = s.get(k).unwrap();
            sum = sum.wrapping_add(e.id());
        }
        println!("get {:?} {sum}", t.elapsed() / keys.len() as u32);
        let t = Instant::now();
        for k in &keys {
            let s = map.pin();
            sum += s.prev(k).map_or(0, |e| e.id());
        }
        println!("prev {:?} {sum}", t.elapsed() / keys.len() as u32);
        let t = Instant::now();
        for _ in 0..keys.len() {
            let s = map.pin();
            sum += s.by_id((rng.next() % u64::from(N)) * 4 + 1).unwrap().id();
        }
        println!("by_id {:?} {sum}", t.elapsed() / keys.len() as u32);
        let t = Instant::now();
        for k in keys.iter().take(20000) {
            let s = map.pin();
            sum += s.scan(k, &[]).take(64).map(|e| e.id()).sum::<u64>();
        }
        println!("scan64 {:?} {sum}", t.elapsed() / 20000);
    }
    let mut v = 3;
    for size in [1usize, 64, 1000] {
        v += 1;
        let n = 200_000;
        let batches: Vec<Batch> = (0..n / size)
            .map(|_| {
                let mut b = Batch::with_capacity(size);
                for _ in 0..size {
                    b.put(region((rng.next() % u64::from(N)) as u32, v), at);
                }
                b
            })
            .collect();
        let t = Instant::now();
        for b in batches {
            let _ = map.apply(b);
        }
        println!(
            "update batch {size}: {:?}/op {:?}",
            t.elapsed() / n as u32,
            map.stats()
        );
    }
    {
        let regions: Vec<Region> = (0..200_000)
            .map(|_| region((rng.next() % u64::from(N)) as u32, 9))
            .collect();
        let t = Instant::now();
        let mut it = regions.into_iter();
        for _ in 0..200 {
            let mut b = Batch::with_capacity(1000);
            for r in it.by_ref().take(1000) {
                b.put(r, at);
            }
            let _ = map.apply(b);
        }
        println!(
            "update batch 1000 with entry making: {:?}/op",
            t.elapsed() / 200_000
        );
    }
    // splits
    {
        let split = |i: u32| {
            let mut mid = key(i);
            mid.push(0);
            let e = if i + 1 == N { vec![] } else { key(i + 1) };
            let l = Region::builder(
                u64::from(i) * 4 + 1,
                KeyRange::new(key(i), mid.clone()).unwrap(),
                RegionEpoch::new(20, 20),
            )
            .build()
            .unwrap();
            let r = Region::builder(
                u64::from(i) * 4 + 2,
                KeyRange::new(mid, e).unwrap(),
                RegionEpoch::new(20, 20),
            )
            .build()
            .unwrap();
            (l, r)
        };
        let n = 100_000;
        let batches: Vec<Batch> = (0..n)
            .map(|_| {
                let i = (rng.next() % u64::from(N)) as u32;
                let (l, r) = split(i);
                let mut b = Batch::with_capacity(2);
                b.put(l, at);
                b.put(r, at);
                b
            })
            .collect();
        let t = Instant::now();
        for b in batches {
            let _ = map.apply(b);
        }
        println!(
            "split: {:?}/split {:?}",
            t.elapsed() / n as u32,
            map.stats()
        );
    }
    drop(map);
    // rival
    let mut bt: BTreeMap<Key, Arc<Region>> = BTreeMap::new();
    let t = Instant::now();
    for &i in &order {
        let r = region(i, 2);
        bt.insert(r.start().clone(), Arc::new(r));
    }
    println!("BTreeMap load per op {:?}", t.elapsed() / N);
    let bt = RwLock::new(bt);
    for _ in 0..2 {
        let t = Instant::now();
        let mut sum = 0u64;
        for k in &keys {
            let g = bt.read().unwrap();
            let (_, e) = g
                .range::<[u8], _>((
                    std::ops::Bound::Unbounded,
                    std::ops::Bound::Included(&k[..]),
                ))
                .next_back()
                .unwrap();
            assert!(e.range().contains(k));
            sum = sum.wrapping_add(e.id());
        }
        println!("BTreeMap get {:?} {sum}", t.elapsed() / keys.len() as u32);
    }
    let rs: Vec<Region> = (0..200_000)
        .map(|_| region((rng.next() % u64::from(N)) as u32, 9))
        .collect();
    let t = Instant::now();
    for r in rs {
        bt.write().unwrap().insert(r.start().clone(), Arc::new(r));
    }
    println!("BTreeMap update {:?}", t.elapsed() / 200_000);
}
