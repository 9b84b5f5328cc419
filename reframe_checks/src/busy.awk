# SPDX-License-Identifier: MIT
# busy.awk: records what else uses a node while a rank runs, as one line of JSON that is written again at each sample.
# busy.sh sets: rank, the process of the rank; root, its parent; host; file. sysfs is /sys unless a test sets it.
# CPU times are in ticks of 10 ms; waiting for a CPU is in ns. Only files of /proc and /sys are read, and nvidia-smi is run if there
# is one: a compute node or an image needs nothing else. Any awk will do. NVIDIA's and AMD's Python bindings are not used: the node
# or image that runs the ranks need not have Python. nvidia-smi prints what pynvml gives of processes, clocks and links; AMD's
# drivers show processes and utilisation in /sys (class/kfd and gpu_busy_percent), and clocks under a limit in no file of text.

function first_line(path,    line) {
    line = ""
    if ((getline line < path) < 0) return ""
    close(path)
    return line
}

function output(command,    line) {
    line = ""
    command | getline line
    close(command)
    return line
}

function safe(text) {
    gsub(/[^A-Za-z0-9._\/+@:-]/, "?", text)
    return substr(text, 1, 80)
}

function is_on_path(name,    directories, count, i, line) {
    count = split(ENVIRON["PATH"], directories, ":")
    for (i = 1; i <= count; ++i) if ((getline line < (directories[i] "/" name)) >= 0) {
        close(directories[i] "/" name)
        return 1
    }
    return 0
}

function elapsed(    words) {
    split(first_line("/proc/uptime"), words, " ")
    return words[1] - began
}

# The time that this program and those it ran have taken, in seconds.
function own_cost(    line, words) {
    line = first_line("/proc/self/stat")
    sub(/.*\) /, "", line)
    split(line, words, " ")
    return (words[12] + words[13] + words[14] + words[15]) / 100
}

function stalled(path,    line) {
    line = first_line(path)
    if (!match(line, /total=[0-9]+/)) return -1
    return substr(line, RSTART + 6, RLENGTH - 6)
}

function read_cpu_list(list,    ranges, ends, count, last, i, cpu) {
    count = split(list, ranges, ",")
    for (i = 1; i <= count; ++i) {
        last = split(ranges[i], ends, "-")
        for (cpu = ends[1] + 0; cpu <= ends[last] + 0; ++cpu) allowed["cpu" cpu] = 1
    }
}

function from_hex(text,    value, i) {
    value = 0
    for (i = 1; i <= length(text); ++i) value = value * 16 + index("0123456789abcdef", substr(tolower(text), i, 1)) - 1
    return value
}

# Every process: parent, ticks, command. A process that appears later began after the first sample.
function read_processes(    line, paths, count, i, pid, words, name, key, ticks) {
    delete parent
    delete children
    delete key_of
    count = split(output("echo /proc/[0-9]*"), paths, " ")
    for (i = 1; i <= count; ++i) {
        pid = substr(paths[i], 7)
        line = first_line(paths[i] "/stat")
        if (!match(line, /\(.*\) /)) continue
        name = substr(line, RSTART + 1, RLENGTH - 3)
        split(substr(line, RSTART + RLENGTH), words, " ")
        key = pid " " words[20]
        ticks = words[12] + words[13]
        parent[pid] = words[2]
        state[pid] = words[1]
        key_of[pid] = key
        if (!(key in base)) base[key] = samples ? 0 : ticks
        used[key] = ticks - base[key]
        of_children[key] = words[14] + words[15]
        if (!(key in base_of_children)) base_of_children[key] = samples ? 0 : of_children[key]
        name_of[key] = name
    }
}

# The launcher on this node, whose descendants are the ranks; without one the parent, as the job script's shell. A rank that is alone
# in a container does not see the others: what they use cannot be told from what strangers use, and nothing is recorded.
function find_root(    pid, line, words) {
    for (pid = root; pid > 1; pid = words[2]) {
        line = first_line("/proc/" pid "/stat")
        if (line ~ /\((prterun|prted|orterun|orted|mpirun|mpiexec[^)]*|hydra_[^)]*|slurmstepd|palsd?)\) /) {
            root = pid
            return
        }
        sub(/.*\) /, "", line)
        if (split(line, words, " ") < 2) break
    }
    if (root <= 1) exit
}

function is_ours(pid,    steps) {
    for (steps = 0; pid > 1 && steps < 100; ++steps) {
        if (pid == root || pid == rank) return 1
        pid = parent[pid]
    }
    return 0
}

# Interrupts and the network stack work for our own messages as well.
function serves_interrupts(name) {
    return name ~ /^(ksoftirqd|irq\/|napi|migration|nv|rcu)/
}

function read_ranks(    pid, line, globs, files, count, i, words, run, wait) {
    for (pid in ours) if (state[pid] != "Z" && pid != root && !(pid in recorder)) {
        while ((getline line < ("/proc/" pid "/status")) > 0) {
            if (line ~ /^Cpus_allowed_list/) { split(line, words, /[: \t]+/); read_cpu_list(words[2]) }
            if (line ~ /^nonvoluntary/) { split(line, words, /[: \t]+/); switches[key_of[pid]] = words[2] }
        }
        close("/proc/" pid "/status")
        globs = globs " /proc/" pid "/task/*/schedstat"
    }
    count = globs == "" ? 0 : split(output("echo" globs), files, " ")
    for (i = 1; i <= count; ++i) {
        if (split(first_line(files[i]), words, " ") < 3) continue
        run[pid_in(files[i])] += words[1]
        wait[pid_in(files[i])] += words[2]
    }
    for (pid in run) if (run[pid] + wait[pid] >= ran[key_of[pid]] + waited[key_of[pid]]) { # fewer if threads have ended
        ran[key_of[pid]] = run[pid]
        waited[key_of[pid]] = wait[pid]
    }
}

function pid_in(path,    words) {
    split(path, words, "/")
    return words[3]
}

function read_cpus(    line, words) {
    while ((getline line < "/proc/stat") > 0) {
        split(line, words, " ")
        if (words[1] ~ /^cpu[0-9]/) {
            busy_now[words[1]] = words[2] + words[3] + words[4]
            steal_now[words[1]] = words[9]
            if (!samples) { busy_then[words[1]] = busy_now[words[1]]; steal_then[words[1]] = steal_now[words[1]] }
        } else if (words[1] == "procs_running") {
            running += words[2]
        }
    }
    close("/proc/stat")
}

function sample(    pid, above) {
    read_cpus()
    read_cgroups()
    read_processes()
    now = elapsed()
    cpu_stall = stalled("/proc/pressure/cpu")
    disk_stall = stalled("/proc/pressure/io")
    if (!samples) {
        first = now
        first_cpu_stall = cpu_stall
        first_disk_stall = disk_stall
    }
    delete ours
    delete recorder
    for (pid in parent) if (is_ours(pid)) ours[pid] = 1
    for (pid in ours) if (pid == self || parent[pid] == self) recorder[pid] = 1
    # Launcher, job script and ReFrame wait for the job, and are not another program.
    for (above = parent[root]; above > 1; above = parent[above]) waits[key_of[above]] = 1
    read_ranks()
    ++samples
}

# Lines of nvidia-smi into rows; their number: 0 where it is missing or complains. A driver that hangs must not keep the recorder.
function ask_gpus(what, rows,    command, count) {
    command = "timeout 10 nvidia-smi " what " 2>/dev/null"
    count = 0
    while ((command | getline rows[count + 1]) > 0) ++count
    close(command)
    return count
}

function read_gpus(    rows, count, words, i, bits, bit, at_limit) {
    count = ask_gpus("--format=csv,noheader,nounits --query-gpu=" gpu_fields reasons, rows)
    if (!samples_of_gpus && count && rows[1] !~ /^[0-9]+,/) { # newer drivers have another name for it
        reasons = "clocks_event_reasons.active"
        count = ask_gpus("--format=csv,noheader,nounits --query-gpu=" gpu_fields reasons, rows)
    }
    for (i = 1; i <= count; ++i) {
        if (split(rows[i], words, /, */) < 6) continue
        gpu_of[words[2]] = words[1]
        bus_of[words[1]] = words[2]
        if (!samples_of_gpus) percent[words[1]] = words[3] + 0
        max_mhz[words[1]] = words[5] + 0
        bits = from_hex(substr(words[6], length(words[6]) - 1))
        at_limit = 0
        for (bit = 128; bit >= 4; bit /= 2) if (bits % (2 * bit) >= bit && bit != 16) {
            at_limit = 1
            limited[words[1], bit] = 1
        }
        if (at_limit && (!(words[1] in mhz) || words[4] + 0 < mhz[words[1]])) mhz[words[1]] = words[4] + 0
    }
    count = ask_gpus("--format=csv,noheader,nounits --query-compute-apps=gpu_bus_id,pid,used_gpu_memory", rows)
    for (i = 1; i <= count; ++i) {
        # A process of another name space can be one of the job's.
        if (split(rows[i], words, /, */) < 3 || !(words[2] in key_of) || words[2] in ours) continue
        describe(key_of[words[2]])
        strangers[key_of[words[2]], words[1]] = words[3] + 0
    }
    if (!samples_of_gpus && length_of(strangers)) read_links()
    ++samples_of_gpus
}

# GPUs of AMD, numbered as in the topology of amdkfd, whose order HIP has.
function find_kfd(    node, id, gpu, path, line, words, location, domain) {
    kfd = sysfs "/class/kfd/kfd"
    for (node = 0; (id = first_line(kfd "/topology/nodes/" node "/gpu_id")) != ""; ++node) {
        if (!(id + 0)) continue # a CPU
        path = kfd "/topology/nodes/" node "/properties"
        location = domain = 0
        while ((getline line < path) > 0) {
            split(line, words, " ")
            if (words[1] == "location_id") location = words[2]
            if (words[1] == "domain") domain = words[2]
        }
        close(path)
        gpu = kfd_gpus++
        bus_of[gpu] = sprintf("%04x:%02x:%02x.%d", domain, int(location / 256) % 256, int(location / 8) % 32, location % 8)
        bus_of_kfd[id] = bus_of[gpu]
        gpu_of[bus_of[gpu]] = gpu
        percent[gpu] = first_line(sysfs "/bus/pci/devices/" bus_of[gpu] "/gpu_busy_percent") + 0
        max_mhz[gpu] = 0
    }
}

function read_kfd(    paths, count, i, words, n, pid, id) {
    count = split(output("echo " kfd "/proc/*/vram_*"), paths, " ")
    for (i = 1; i <= count; ++i) {
        n = split(paths[i], words, "/")
        pid = words[n - 1]
        id = substr(words[n], 6)
        if (!(id in bus_of_kfd) || !(pid in key_of) || pid in ours || !(first_line(paths[i]) + 0)) continue
        describe(key_of[pid])
        strangers[key_of[pid], bus_of_kfd[id]] = int(first_line(paths[i]) / 1048576)
    }
}

# What moves over NVLink before the job moves anything is not the job's.
function read_links(    start, turn, rows, count, i, words, gpu, sum) {
    for (turn = 0; turn < 2; ++turn) {
        count = ask_gpus("nvlink -gt d", rows)
        for (i = 1; i <= count; ++i) {
            if (rows[i] ~ /^GPU [0-9]+:/) { split(rows[i], words, /[ :]+/); gpu = words[2] }
            if (match(rows[i], /Data [TR]x: *[0-9]+ KiB/)) {
                split(substr(rows[i], RSTART, RLENGTH), words, /[: ]+/)
                sum[gpu] += (turn ? 1 : -1) * words[3] * 1024
            }
        }
        if (!turn) {
            start = elapsed()
            system("sleep 0.2")
        }
    }
    start = elapsed() - start
    for (gpu in sum) link_rate[gpu] = sum[gpu] / start / 1e9
}

function length_of(array,    n, key) {
    n = 0
    for (key in array) ++n
    return n
}

function gpus_as_json(    gpu, bit, bits, list, pair, words) {
    for (gpu = 0; gpu in bus_of; ++gpu) {
        bits = 0
        for (bit = 4; bit <= 128; bit *= 2) if ((gpu, bit) in limited) bits += bit
        list = list (gpu ? ", " : "") "{\"gpu\": " gpu ", \"bus\": \"" safe(bus_of[gpu]) "\", \"percent\": " percent[gpu]
        list = list ", \"mhz\": " mhz[gpu] + 0 ", \"max_mhz\": " max_mhz[gpu] ", \"throttle\": " bits
        list = list (gpu in link_rate ? ", \"link_gb_per_s\": " figure(positive(link_rate[gpu])) : "") "}"
    }
    if (list == "") return ""
    list = ", \"gpus\": [" list "], \"gpu_processes\": ["
    for (pair in strangers) {
        split(pair, words, SUBSEP)
        list = list (list ~ /\[$/ ? "" : ", ") "{" described[words[1]] ", \"gpu\": " gpu_of[words[2]] + 0
        list = list ", \"mib\": " strangers[pair] "}"
    }
    return list "]"
}

# Ports of a network: what they have carried, in bytes. IP over InfiniBand counts at the port as well.
function read_ports(    paths, count, i, path, words, name, speed) {
    count = split(output("echo " sysfs "/class/infiniband/*/ports/* " sysfs "/class/net/*/device"), paths, " ")
    for (i = 1; i <= count; ++i) {
        path = paths[i]
        if (path ~ /\*/) continue
        split(substr(path, length(sysfs) + 1), words, "/")
        name = words[4]
        if (path ~ /infiniband/) {
            speed = first_line(path "/rate") / 8 # "400 Gb/sec (4X NDR)"
            path = path "/counters/port_"
            received[name] = first_line(path "rcv_data") * 4
            sent[name] = first_line(path "xmit_data") * 4
        } else {
            sub(/device$/, "", path)
            if (first_line(path "type") == 32) continue
            speed = first_line(path "speed") / 8000
            received[name] = first_line(path "statistics/rx_bytes")
            sent[name] = first_line(path "statistics/tx_bytes")
        }
        if (speed > 0) port_speed[name] = speed
    }
}

# The bytes that ports carry from now on count for the next rate.
function mark_ports(    name) {
    for (name in port_speed) {
        received_then[name] = received[name]
        sent_then[name] = sent[name]
    }
    ports_read = elapsed()
}

function port_rate(name,    rate, seconds) {
    seconds = elapsed() - ports_read
    if (seconds <= 0) return 0
    rate = received[name] - received_then[name]
    if (sent[name] - sent_then[name] > rate) rate = sent[name] - sent_then[name]
    return rate / seconds / 1e9
}

function compare_ports(    name) {
    read_ports()
    for (name in port_speed) rate_before[name] = port_rate(name)
    mark_ports()
}

# A port counts if it was used by one percent or more, before the job sent anything or later.
function ports_as_json(    name, rate, list) {
    for (name in port_speed) {
        rate = positive(port_rate(name))
        if (rate < 0.01 * port_speed[name] && rate_before[name] < 0.01 * port_speed[name]) continue
        list = list (list == "" ? "" : ", ") "{\"name\": \"" safe(name) "\", \"gb_per_s\": " figure(positive(rate_before[name]))
        list = list ", \"link_gb_per_s\": " figure(port_speed[name]) ", \"during_gb_per_s\": " figure(rate) "}"
    }
    return list == "" ? "" : ", \"nics\": [" list "]"
}

# The cgroups of the job that have a limit of CPU time, from the innermost to the root of what is mounted: version 2, or the
# controller of version 1. The path is that of the host where a container has no name space of its own.
function find_cgroups(    line, words, controllers, i, base, path, limit) {
    while ((getline line < ("/proc/" rank "/cgroup")) > 0) {
        if (split(line, words, ":") < 3) continue
        base = ""
        if (words[1] == "0" && first_line(sysfs "/fs/cgroup/cgroup.controllers") != "") base = sysfs "/fs/cgroup"
        split(words[2], controllers, ",")
        for (i in controllers) if (controllers[i] == "cpu") base = sysfs "/fs/cgroup/" words[2]
        if (base == "") continue
        for (path = words[3]; ; sub(/\/[^\/]*$/, "", path)) {
            if (path == "/") path = ""
            if (job_group == "" && first_line(base path "/cpu.pressure") != "") job_group = base path
            limit = cpu_limit(base path)
            if (limit > 0) limit_of[base path] = limit
            if (path == "") break
        }
    }
    close("/proc/" rank "/cgroup")
}

function cpu_limit(group,    words, quota) {
    if (split(first_line(group "/cpu.max"), words, " ") == 2) return words[1] == "max" ? 0 : words[1] / words[2]
    quota = first_line(group "/cpu.cfs_quota_us")
    return quota > 0 ? quota / first_line(group "/cpu.cfs_period_us") : 0
}

# CPU time for which a limit kept tasks from running, in seconds.
function throttled_in(group,    line, words, seconds) {
    seconds = 0
    while ((getline line < (group "/cpu.stat")) > 0) {
        split(line, words, " ")
        if (words[1] == "throttled_usec") seconds = words[2] / 1e6
        if (words[1] == "throttled_time") seconds = words[2] / 1e9
    }
    close(group "/cpu.stat")
    return seconds
}

function read_cgroups(    group) {
    for (group in limit_of) {
        throttled[group] = throttled_in(group)
        if (!samples) throttled_then[group] = throttled[group]
    }
    if (job_group != "") job_stall = stalled(job_group "/cpu.pressure")
    if (!samples) first_job_stall = job_stall
}

# The limit that stopped the job most.
function cgroups_as_json(seconds,    group, tightest) {
    for (group in limit_of)
        if (tightest == "" || throttled[group] - throttled_then[group] > throttled[tightest] - throttled_then[tightest])
            tightest = group
    group = ""
    if (job_group != "") group = ", \"job_pressure\": " figure(positive(job_stall - first_job_stall) / 1e6 / seconds)
    if (tightest == "") return group
    return group ", \"quota\": " figure(limit_of[tightest]) \
        ", \"throttled\": " figure(positive(throttled[tightest] - throttled_then[tightest]) / seconds)
}

function figure(value) { return sprintf("%.4g", value) }

function user_of(pid,    line, words, uid) {
    while ((getline line < ("/proc/" pid "/status")) > 0)
        if (line ~ /^Uid:/) { split(line, words, /[: \t]+/); uid = words[2] }
    close("/proc/" pid "/status")
    if (uid == "") return ""
    if (!length_of(user_name)) {
        user_name[0] = "root"
        while ((getline line < "/etc/passwd") > 0) if (split(line, words, ":") > 2) user_name[words[3]] = safe(words[1])
        close("/etc/passwd")
    }
    if (!(uid in user_name)) user_name[uid] = safe(output("id -nu " uid " 2>/dev/null || echo " uid))
    return user_name[uid]
}

# The program, and its first argument if that is no option: others' arguments may hold secrets.
function describe(key,    pid, line, words, command) {
    if (key in described) return
    pid = key
    sub(/ .*/, "", pid)
    line = first_line("/proc/" pid "/cmdline")
    gsub(/[^!-~]/, " ", line) # some awk end the line at the first NUL
    split(line, words, " ")
    command = words[1] == "" ? name_of[key] : words[1]
    if (words[2] != "" && words[2] !~ /^-|=/) command = safe(command) " " safe(words[2])
    else command = safe(command)
    described[key] = "\"pid\": " pid ", \"user\": \"" user_of(pid) "\", \"command\": \"" command "\""
}

function write_line(    seconds, cpu, cpus, busy, steal, node_cpus, node_busy, own, kernel, key, pid, wait, total, share, \
                        changed, waiting, list, top, n, line, ignored) {
    seconds = now - first
    if (seconds <= 0) return
    for (cpu in busy_now) {
        ++node_cpus
        node_busy += busy_now[cpu] - busy_then[cpu]
        if (cpu in allowed) {
            ++cpus
            busy += busy_now[cpu] - busy_then[cpu]
            steal += steal_now[cpu] - steal_then[cpu]
        }
    }
    for (pid in ours) {
        key = key_of[pid]
        mine[key] = 1
        own += used[key] + of_children[key] - base_of_children[key]
    }
    for (key in used) {
        if (key in waits || serves_interrupts(name_of[key])) ignored += used[key]
        else if (!(key in mine) && used[key] > 0) other[key] = used[key]
    }
    wait = -1
    for (key in ran) {
        total = ran[key] + waited[key]
        if (total < 5e7) continue # less than 50 ms: it was only started
        share = waited[key] / total
        if (share > wait) wait = share
        waiting += waited[key]
        changed += switches[key]
    }
    list = ""
    for (n = 0; n < 3; ++n) {
        top = ""
        for (key in other) if (!(key in shown) && (top == "" || other[key] > other[top])) top = key
        if (top == "" || other[top] < seconds) break # less than one percent of a CPU
        shown[top] = 1
        describe(top)
        list = list (list == "" ? "" : ", ") "{" described[top] ", \"cpus\": " figure(other[top] / 100 / seconds) "}"
    }
    delete shown
    line = "{\"event\": \"busy\", \"host\": \"" safe(host) "\", \"seconds\": " figure(seconds)
    line = line ", \"cpus\": " cpus + 0 ", \"own\": " figure(own / 100 / seconds)
    line = line ", \"others\": " figure(positive(busy - own - ignored) / 100 / seconds)
    line = line ", \"node_cpus\": " node_cpus + 0
    line = line ", \"node_others\": " figure(positive(node_busy - own - ignored) / 100 / seconds)
    line = line ", \"steal\": " figure(steal / 100 / seconds) ", \"switches\": " changed + 0
    if (wait >= 0) line = line ", \"wait\": " figure(wait) ", \"waiting\": " figure(waiting / 1e9 / seconds)
    if (cpu_stall >= 0) line = line ", \"pressure\": " figure((cpu_stall - first_cpu_stall) / 1e6 / seconds)
    if (disk_stall >= 0) line = line ", \"disk\": " figure((disk_stall - first_disk_stall) / 1e6 / seconds)
    line = line ", \"runnable\": " figure(running / samples)
    line = line ", \"processes\": [" list "]"
    print line cgroups_as_json(seconds) gpus_as_json() ports_as_json() "}" > file
    close(file)
}

function positive(value) { return value > 0 ? value : 0 }

function taken(    line) { # the job script has printed the file
    if ((getline line < file) < 0) return 1
    close(file)
    return 0
}

function pause(    gap, cost) {
    # Half a percent of a core; but a job that ends soon needs samples soon.
    cost = own_cost() * 200 - elapsed()
    gap = cost < elapsed() ? cost : elapsed()
    if (gap < 0.25) gap = 0.25
    while (gap > 0 && alive()) {
        system("sleep " (gap < 0.5 ? gap : 0.5))
        gap -= 0.5
    }
}

function alive(    line) {
    line = first_line("/proc/" rank "/stat")
    sub(/.*\) /, "", line)
    return line != "" && line !~ /^Z/
}

BEGIN {
    split(first_line("/proc/self/stat"), words, " ")
    self = words[1]
    find_root()
    began = 0
    began = elapsed()
    gpu_fields = "index,pci.bus_id,utilization.gpu,clocks.sm,clocks.max.sm,"
    reasons = "clocks_throttle_reasons.active"
    has_gpus = is_on_path("nvidia-smi")
    if (sysfs == "") sysfs = "/sys"
    find_cgroups()
    read_ports()
    mark_ports()
    sample()
    find_kfd()
    if (has_gpus) read_gpus()
    if (kfd_gpus) read_kfd()
    while (alive()) {
        pause()
        if (samples == 1) compare_ports()
        else read_ports()
        sample()
        if (has_gpus) read_gpus()
        if (kfd_gpus) read_kfd()
        if (taken()) exit
        write_line()
    }
}
