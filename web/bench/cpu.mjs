// CPU time of the processes that this one started, and of those that they started; from /proc, so on Linux alone.

import { readFileSync, readdirSync } from 'node:fs';

const TICK = 10; // milliseconds of a tick in /proc/PID/stat

/** Milliseconds of all processes, and of the main threads of pages; undefined where there is no /proc. */
export function cpuTimes() {
  let all, pages;
  for (const { pid, ticks, page } of started()) {
    all = (all ?? 0) + ticks * TICK;
    if (page) pages = (pages ?? 0) + Number(read(`/proc/${pid}/task/${pid}/schedstat`).split(' ')[0]) / 1e6;
  }
  return { all, pages };
}

function started() {
  const processes = new Map();
  for (const pid of entries('/proc').filter((it) => /^\d+$/.test(it))) {
    const stat = read(`/proc/${pid}/stat`);
    const rest = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
    processes.set(pid, { pid, parent: rest[1], ticks: Number(rest[11]) + Number(rest[12]) });
  }
  const ours = ({ parent }) => parent === String(process.pid) || (processes.has(parent) && ours(processes.get(parent)));
  return [...processes.values()].filter(ours).map((it) => ({ ...it, page: read(`/proc/${it.pid}/cmdline`).includes('--type=renderer') }));
}

function read(path) {
  try {
    return readFileSync(path, 'latin1');
  } catch {
    return '0'; // it has ended
  }
}

function entries(path) {
  try {
    return readdirSync(path);
  } catch {
    return [];
  }
}
