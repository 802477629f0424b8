"""Estimators: what the servers learn of a client's data, and what learning it costs on the clock.

An estimator is a function ``(session, enquiry, params) -> Steps``: a SimPy process that returns estimates [clients, d], a row
for each client. The larger the distance of two rows, the more the clients' data differ (or their speed, of ``response-time``).
It charges for all that clients compute and send. A fact that it may declare about itself: ``per_class=True`` where a row has
one number for each class.
"""

from emulator.methods.estimators.asking import Enquiry, estimates_for, learn, learn_each

__all__ = ["Enquiry", "estimates_for", "learn", "learn_each"]
