package main

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is the kernel's unit of the times in /proc, the same on every Linux.
const clockTick = 10 * time.Millisecond

// cpuTime is what a process has spent so far, in user and in kernel mode.
func cpuTime(pid int) (time.Duration, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, fmt.Errorf("reading a process's times: %w", err)
	}
	// The name, in parentheses, may hold spaces; utime and stime are the 12th
	// and 13th field after it.
	fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:]))
	if len(fields) < 13 {
		return 0, fmt.Errorf("reading a process's times: %d fields in %q", len(fields), raw)
	}
	var ticks int64
	for _, field := range fields[11:13] {
		n, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading a process's times: %w", err)
		}
		ticks += n
	}
	return time.Duration(ticks) * clockTick, nil
}

// cpuTimes is what several processes have spent together.
func cpuTimes(pids []int) (time.Duration, error) {
	var all time.Duration
	for _, pid := range pids {
		spent, err := cpuTime(pid)
		if err != nil {
			return 0, err
		}
		all += spent
	}
	return all, nil
}

// memory is what a process holds in RAM, and the most it ever held, in MiB.
type memory struct{ now, peak float64 }

func memoryOf(pid int) (memory, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return memory{}, fmt.Errorf("reading a process's memory: %w", err)
	}
	var m memory
	for line := range strings.Lines(string(raw)) {
		name, value, _ := strings.Cut(line, ":")
		field := map[string]*float64{"VmRSS": &m.now, "VmHWM": &m.peak}[name]
		if field == nil {
			continue
		}
		kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
		if err != nil {
			return memory{}, fmt.Errorf("reading a process's memory: %w", err)
		}
		*field = kib / 1024
	}
	if m.now == 0 || m.peak == 0 {
		return memory{}, fmt.Errorf("reading a process's memory: no VmRSS or VmHWM of process %d", pid)
	}
	return m, nil
}
