"""Cases: certificates for systems with sensors, units and attackers, through the public interface alone."""
