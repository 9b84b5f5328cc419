// SPDX-License-Identifier: MIT
// What TCP of this node sent, as the kernel counts it.
#pragma once
#include <fstream>
#include <sstream>
#include <string>

// Segments since the start of the network namespace; those that were sent again are in both.
struct TcpSegments {
    std::size_t sent = 0, resent = 0;
};

// Zeros if the kernel shows none.
inline TcpSegments tcp_segments() {
    std::ifstream file("/proc/self/net/snmp");
    TcpSegments found;
    std::string names;
    for (std::string line; std::getline(file, line);) {
        if (line.rfind("Tcp:", 0) != 0) continue;
        std::istringstream keys(names), values(line);
        std::string key;
        for (std::string value; keys >> key && values >> value;) {
            if (key == "OutSegs") found.sent = std::stoull(value);
            if (key == "RetransSegs") found.resent = std::stoull(value);
        }
        names = line;  // the first of two lines
    }
    return found;
}
