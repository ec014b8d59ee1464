"""From requests by length class to violation rates, risk and calibration.

Fed by collectors that know requests one by one, or only the histograms that an engine serves. Imports none of them.
"""
